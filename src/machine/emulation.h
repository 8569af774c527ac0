// Whether sandboxes run on this host or in the emulated one.
#pragma once

#include <string>

#include "machine/settings.h"

namespace space::machine {

struct HostChoice {
  bool is_emulated = false;
  std::string reason;  // one line for a person
};

// kAuto asks the KVM probe (well below a second); kOn and kOff are taken at their word.
HostChoice ChooseHost(Mode mode);

}  // namespace space::machine
