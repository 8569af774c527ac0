#include "boot/command_line.h"

namespace space::boot {

std::string DefaultCommandLine(bool has_serial) {
  const std::string common = "panic=-1 reboot=a,panic_warm pci=off quiet ";
  return common + (has_serial ? "8250.nr_uarts=1 console=ttyS0" : "8250.nr_uarts=0");
}

}  // namespace space::boot
