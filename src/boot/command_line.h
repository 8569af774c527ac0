// The part of the kernel command line that this machine needs, whatever the caller adds behind it.
#pragma once

#include <string>

namespace space::boot {

// Words and why, by Linux 6.1:
//   panic=-1            a panic restarts at once, so that the VM ends and says why
//   reboot=a,panic_warm restarts go through the ACPI reset register (the kernel falls back to the
//                       keyboard controller, then to a triple fault), and a restart out of panic()
//                       is "warm": the kernel then leaves 0x1234 at physical 0x472, which the VMM
//                       reads to tell a panic from a reboot (kernel/reboot.c, reboot_setup;
//                       arch/x86/kernel/reboot.c, native_machine_emergency_restart)
//   pci=off             there is no PCI; probing its ports would cost exits
//   8250.nr_uarts=N     one port with the serial log, none without; the driver otherwise probes
//   four console, quiet      only errors and worse go out, as every byte is an exit; a later
//   `debug` or
//                       `loglevel=N` in the caller's part wins
std::string DefaultCommandLine(bool has_serial);

}  // namespace space::boot
