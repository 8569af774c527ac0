// Kernel modules that the root disk and vsock need, from the initramfs.
#pragma once

#include <string>

namespace space::agent::pid1 {

// Loads `folder`/<name> for each line of `folder`/order, in order. Missing, built in or failing
// modules are logged: what they were for fails later with a clear reason.
void LoadModules(const std::string& folder);

}  // namespace space::agent::pid1
