// A vCPU's state as sections and back; part of saved_state.h.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include "kvm/vcpu_state.h"

namespace space {

std::string EncodeVcpu(const kvm::VcpuState& state);
Result<kvm::VcpuState> DecodeVcpu(std::string_view bytes);

// A kernel structure as its bytes: they are x86-64's ABI and do not change.
template <class T>
std::string_view BytesOf(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

}  // namespace space
