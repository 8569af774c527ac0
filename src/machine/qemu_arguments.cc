#include "machine/qemu_arguments.h"

#include "base/units.h"

namespace space::machine {
namespace {

// In QEMU's option values a comma is written twice.
std::string Escaped(const std::string& value) {
  std::string out;
  for (const char c : value) {
    out += c;
    if (c == ',') {
      out += c;
    }
  }
  return out;
}

void AddDisk(std::vector<std::string>& arguments, const std::string& serial,
             const std::string& path, const std::string& options) {
  arguments.insert(
      arguments.end(),
      {"-drive", "file=" + Escaped(path) + ",if=none,format=raw,id=" + serial + options, "-device",
       "virtio-blk-pci,drive=" + serial + ",serial=" + serial});
}

void AddChannels(std::vector<std::string>& arguments, const Layout& layout) {
  arguments.insert(arguments.end(), {"-device", "virtio-serial-pci,max_ports=31"});
  for (size_t i = 0; i < kChannels; ++i) {
    const std::string id = "exec" + std::to_string(i);
    arguments.insert(
        arguments.end(),
        {"-chardev",
         "socket,id=" + id + ",path=" + Escaped(layout.channel_socket(i)) + ",server=on,wait=off",
         "-device", "virtserialport,chardev=" + id + ",name=space.exec." + std::to_string(i)});
  }
}

}  // namespace

std::vector<std::string> QemuArguments(const QemuPlan& plan, const Layout& layout) {
  std::vector<std::string> arguments = {
      "-name",
      "space-machine",
      "-M",
      "q35",
      "-accel",
      "tcg,thread=multi",
      "-cpu",
      "max,+svm",
      "-smp",
      std::to_string(plan.cpus),
      "-m",
      std::to_string(plan.memory_bytes / MiB(1)),
      "-nodefaults",
      "-no-user-config",
      "-nographic",
      "-no-reboot",
      // QEMU is not a boundary here, yet nothing in it needs new programs or privileges.
      "-sandbox",
      "on,obsolete=deny,elevateprivileges=deny,spawn=deny",
      "-serial",
      "stdio",
      "-kernel",
      plan.kernel,
      "-initrd",
      plan.initrd,
      // Without tsc=reliable the clock becomes the HPET, which costs 8 times more to read. On a
      // busy host the kernel's own test of the timer can fail, hence no_timer_check.
      "-append",
      "console=ttyS0 reboot=t panic=-1 mitigations=off tsc=reliable no_timer_check quiet",
      "-chardev",
      "socket,id=monitor,path=" + Escaped(layout.monitor_socket()) + ",server=on,wait=off",
      "-mon",
      "chardev=monitor,mode=control",
      "-device",
      "virtio-rng-pci",
      "-netdev",
      "user,id=net,hostfwd=tcp:127.0.0.1:" + std::to_string(plan.host_port) +
          "-10.0.2.15:" + std::to_string(kInnerPort),
      "-device",
      "virtio-net-pci,netdev=net,romfile=",
  };
  AddDisk(arguments, "space-root", plan.root_image, ",snapshot=on");
  AddDisk(arguments, "space-bin", layout.binaries_disk(), ",readonly=on");
  if (plan.has_images_disk) {
    AddDisk(arguments, "space-images", layout.images_disk(), ",readonly=on");
  }
  AddDisk(arguments, "space-data", layout.data_disk(), ",discard=unmap");
  AddChannels(arguments, layout);
  return arguments;
}

}  // namespace space::machine
