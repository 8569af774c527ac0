// PID 1 of the guests that test the monitor itself: loads the modules that /modules/order names,
// says hello on vsock, then does the one thing that `test=` on the kernel command line names and
// ends.
//
//   poweroff reboot panic triple     ends the VM in that way
//   disk                             reads /dev/vda, writes a pattern, reads it back, powers off
//   rng                              reads /dev/hwrng, powers off
//   cpus                             prints how many processors are online, powers off
//   echo                             serves vsock port 5000: sends back what comes, for ever
//   spin                             keeps every processor busy for ever
//   hold                             sleeps for ever
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <sys/io.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr unsigned kHelloPort = 1024;
constexpr unsigned kEchoPort = 5000;

void Say(const std::string& text) {
  const std::string line = "guest: " + text + "\n";
  // /dev/kmsg reaches the serial line only above the console's level, so both.
  if (::write(1, line.data(), line.size()) < 0) {
    return;
  }
}

[[noreturn]] void End(int how) {
  ::sync();
  ::reboot(how);
  ::_exit(1);
}

std::string ReadText(const char* path) {
  std::string text;
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  std::array<char, 4096> buffer{};
  for (;;) {
    const ssize_t got = fd < 0 ? 0 : ::read(fd, buffer.data(), buffer.size());
    if (got <= 0) {
      break;
    }
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  if (fd >= 0) {
    ::close(fd);
  }
  return text;
}

void LoadModules() {
  const std::string order = ReadText("/modules/order");
  size_t at = 0;
  while (at < order.size()) {
    const size_t end = order.find('\n', at);
    const std::string path = "/modules/" + order.substr(at, end - at);
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || ::syscall(SYS_finit_module, fd, "", 0) != 0) {
      Say("cannot load " + path + ": " + std::strerror(errno));
    }
    if (fd >= 0) {
      ::close(fd);
    }
    at = end == std::string::npos ? order.size() : end + 1;
  }
}

void Hello() {
  const int fd = ::socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_vm address = {};
  address.svm_family = AF_VSOCK;
  address.svm_cid = VMADDR_CID_HOST;
  address.svm_port = kHelloPort;
  if (fd < 0 || ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    Say(std::string("no hello: ") + std::strerror(errno));
    return;
  }
  if (::write(fd, "hello from the test guest", 25) != 25) {
    Say("hello cut short");
  }
  ::shutdown(fd, SHUT_WR);
  ::close(fd);
}

void EchoForEver() {
  const int listener = ::socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_vm address = {};
  address.svm_family = AF_VSOCK;
  address.svm_cid = VMADDR_CID_ANY;
  address.svm_port = kEchoPort;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(listener, 16) != 0) {
    Say("cannot listen");
    return;
  }
  Hello();
  std::vector<char> buffer(1 << 16);
  for (;;) {
    const int stream = ::accept(listener, nullptr, nullptr);
    ssize_t got = 0;
    while (stream >= 0 && (got = ::read(stream, buffer.data(), buffer.size())) > 0) {
      for (ssize_t sent = 0; sent < got;) {
        const ssize_t now = ::write(stream, buffer.data() + sent, static_cast<size_t>(got - sent));
        if (now <= 0) {
          break;
        }
        sent += now;
      }
    }
    if (stream >= 0) {
      ::close(stream);
    }
  }
}

void TestDisk() {
  constexpr size_t kBytes = 1 << 20;
  const int fd = ::open("/dev/vda", O_RDWR | O_CLOEXEC);
  std::vector<char> written(kBytes), got(kBytes);
  for (size_t at = 0; at < kBytes; ++at) {
    written[at] = static_cast<char>(at * 7 + at / 4096);
  }
  const bool is_read = fd >= 0 && ::pread(fd, got.data(), kBytes, 0) == kBytes;
  Say(std::string("disk first byte ") + (is_read ? std::to_string(got[0]) : "unreadable"));
  const bool is_written = fd >= 0 && ::pwrite(fd, written.data(), kBytes, 1 << 20) == kBytes &&
                          ::fsync(fd) == 0 && ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0 &&
                          ::pread(fd, got.data(), kBytes, 1 << 20) == kBytes && got == written;
  Say(is_written ? "disk ok" : "disk BAD");
}

void TestRng() {
  const int fd = ::open("/dev/hwrng", O_RDONLY | O_CLOEXEC);
  std::array<unsigned char, 64> bytes{};
  const bool is_ok = fd >= 0 && ::read(fd, bytes.data(), bytes.size()) > 0;
  Say(is_ok ? "rng ok" : "rng BAD");
}

[[noreturn]] void TripleFault() {
  // From user space only a mapping of no IDT can do it; the kernel's own way is reboot=t, which is
  // given on the command line of that test.
  End(RB_AUTOBOOT);
}

[[noreturn]] void Spin() {
  const long cpus = ::sysconf(_SC_NPROCESSORS_ONLN);
  for (long at = 1; at < cpus; ++at) {
    if (::fork() == 0) {
      break;
    }
  }
  for (;;) {
    asm volatile("pause");
  }
}

std::string TestName() {
  const std::string line = ReadText("/proc/cmdline");
  const size_t at = line.find("test=");
  if (at == std::string::npos) {
    return "poweroff";
  }
  const size_t end = line.find_first_of(" \n", at);
  return line.substr(at + 5, end - at - 5);
}

}  // namespace

int main() {
  ::mkdir("/proc", 0755);
  ::mkdir("/sys", 0755);
  ::mkdir("/dev", 0755);
  ::mount("proc", "/proc", "proc", 0, nullptr);
  ::mount("sysfs", "/sys", "sysfs", 0, nullptr);
  ::mount("dev", "/dev", "devtmpfs", 0, nullptr);
  if (const int console = ::open("/dev/console", O_RDWR); console >= 0) {
    ::dup2(console, 0);
    ::dup2(console, 1);
    ::dup2(console, 2);
  }
  LoadModules();
  const std::string test = TestName();
  Say("up, test " + test + ", uptime " + ReadText("/proc/uptime"));
  if (test != "echo") {
    Hello();
  }
  if (test == "reboot") {
    End(RB_AUTOBOOT);
  } else if (test == "panic") {
    ::_exit(7);  // PID 1 must not end
  } else if (test == "triple") {
    TripleFault();
  } else if (test == "disk") {
    TestDisk();
  } else if (test == "rng") {
    TestRng();
  } else if (test == "cpus") {
    Say("cpus " + std::to_string(::sysconf(_SC_NPROCESSORS_ONLN)) + " memory " +
        std::to_string(::sysconf(_SC_PHYS_PAGES) / 256) + " MiB clock " +
        ReadText("/sys/devices/system/clocksource/clocksource0/current_clocksource"));
  } else if (test == "echo") {
    EchoForEver();
  } else if (test == "spin") {
    Spin();
  } else if (test == "hold") {
    for (;;) {
      ::pause();
    }
  }
  End(RB_POWER_OFF);
}
