// Network of the guest as far as the kernel needs no help of a program.
#pragma once

namespace space::agent::pid1 {

// 127.0.0.1 and ::1 come by themselves once the interface is up.
void BringUpLoopback();

}  // namespace space::agent::pid1
