#include "machine/emulation.h"

#include "kvm/probe.h"

namespace space::machine {

HostChoice ChooseHost(Mode mode) {
  if (mode == Mode::kOn) {
    return {true, "asked for by --machine on or machine.mode"};
  }
  if (mode == Mode::kOff) {
    return {false, "asked for by --machine off or machine.mode"};
  }
  const KvmVerdict verdict = ProbeKvmAt("/dev/kvm");
  return {!verdict.is_usable, verdict.reason};
}

}  // namespace space::machine
