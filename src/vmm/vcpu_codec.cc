#include "vmm/vcpu_codec.h"

#include <cstring>
#include <span>
#include <type_traits>

#include "base/bytes.h"
#include "state/state.h"

namespace space {
namespace {

constexpr uint16_t kVersion = 1;

// Layouts that the file relies on.
static_assert(sizeof(kvm_cpuid_entry2) == 40 && sizeof(kvm_mp_state) == 4);
static_assert(sizeof(kvm_regs) == 144 && sizeof(kvm_sregs) == 312 && sizeof(kvm_xcrs) == 392);
static_assert(sizeof(kvm_fpu) == 416);
static_assert(sizeof(kvm_debugregs) == 128 && sizeof(kvm_lapic_state) == 1024);
static_assert(sizeof(kvm_vcpu_events) == 64);

template <class T>
Result<void> GetStruct(const StateReader& in, std::string_view name, T& into) {
  SPACE_TRY(const StateSection section, in.Require(name, kVersion), "vCPU");
  if (section.body.size() != sizeof(T)) {
    return Fail(ErrorCode::kInvalidArgument, "section has a wrong size", name);
  }
  std::memcpy(&into, section.body.data(), sizeof(T));
  return {};
}

Result<kvm::CpuidTable> GetCpuid(const StateReader& in) {
  SPACE_TRY(const StateSection section, in.Require("cpuid", kVersion), "vCPU");
  const size_t count = section.body.size() / sizeof(kvm_cpuid_entry2);
  if (section.body.size() % sizeof(kvm_cpuid_entry2) != 0 || count == 0 ||
      count > kvm::VcpuState::kMaxCpuid) {
    return Fail(ErrorCode::kInvalidArgument, "section has a wrong size", "cpuid");
  }
  kvm::CpuidTable table(count);
  std::memcpy(table.data(), section.body.data(), section.body.size());
  return table;
}

std::string EncodeMsrs(const std::vector<kvm_msr_entry>& msrs) {
  ByteWriter out;
  for (const kvm_msr_entry& entry : msrs) {
    out.Put(uint32_t{entry.index});
    out.Put(uint64_t{entry.data});
  }
  return std::move(out).Take();
}

Result<std::vector<kvm_msr_entry>> GetMsrs(const StateReader& in) {
  constexpr size_t kEntryBytes = 12;
  SPACE_TRY(const StateSection section, in.Require("msrs", kVersion), "vCPU");
  const size_t count = section.body.size() / kEntryBytes;
  if (section.body.size() % kEntryBytes != 0 || count > kvm::VcpuState::kMaxMsrs) {
    return Fail(ErrorCode::kInvalidArgument, "section has a wrong size", "msrs");
  }
  ByteReader body(section.body);
  std::vector<kvm_msr_entry> msrs(count);
  for (kvm_msr_entry& entry : msrs) {
    SPACE_TRY(entry.index, body.Get<uint32_t>(), "MSR");
    SPACE_TRY(entry.data, body.Get<uint64_t>(), "MSR");
  }
  return msrs;
}

Result<std::vector<std::byte>> GetXsave(const StateReader& in) {
  SPACE_TRY(const StateSection section, in.Require("xsave", kVersion), "vCPU");
  const size_t size = section.body.size();
  if (size != 0 && (size < sizeof(kvm_xsave) || size > kvm::VcpuState::kMaxXsaveBytes)) {
    return Fail(ErrorCode::kInvalidArgument, "section has a wrong size", "xsave");
  }
  const std::span<const std::byte> body = std::as_bytes(std::span(section.body));
  return std::vector<std::byte>(body.begin(), body.end());
}

}  // namespace

std::string EncodeVcpu(const kvm::VcpuState& state) {
  StateWriter out;
  out.Add("cpuid", kVersion,
          {reinterpret_cast<const char*>(state.cpuid.data()),
           state.cpuid.size() * sizeof(kvm_cpuid_entry2)});
  out.Add("mp_state", kVersion, BytesOf(state.mp_state));
  out.Add("registers", kVersion, BytesOf(state.registers));
  out.Add("special", kVersion, BytesOf(state.special));
  out.Add("xsave", kVersion,
          {reinterpret_cast<const char*>(state.xsave.data()), state.xsave.size()});
  out.Add("fpu", kVersion, BytesOf(state.fpu));
  out.Add("xcrs", kVersion, BytesOf(state.xcrs));
  out.Add("debug", kVersion, BytesOf(state.debug));
  out.Add("apic", kVersion, BytesOf(state.apic));
  out.Add("tsc_khz", kVersion, BytesOf(state.tsc_khz));
  out.Add("msrs", kVersion, EncodeMsrs(state.msrs));
  out.Add("events", kVersion, BytesOf(state.events));
  return std::move(out).Take();
}

Result<kvm::VcpuState> DecodeVcpu(std::string_view bytes) {
  SPACE_TRY(const StateReader in, StateReader::Parse(bytes), "vCPU");
  kvm::VcpuState state;
  SPACE_TRY(state.cpuid, GetCpuid(in), "read");
  SPACE_TRY_VOID(GetStruct(in, "mp_state", state.mp_state), "read");
  SPACE_TRY_VOID(GetStruct(in, "registers", state.registers), "read");
  SPACE_TRY_VOID(GetStruct(in, "special", state.special), "read");
  SPACE_TRY(state.xsave, GetXsave(in), "read");
  SPACE_TRY_VOID(GetStruct(in, "fpu", state.fpu), "read");
  SPACE_TRY_VOID(GetStruct(in, "xcrs", state.xcrs), "read");
  SPACE_TRY_VOID(GetStruct(in, "debug", state.debug), "read");
  SPACE_TRY_VOID(GetStruct(in, "apic", state.apic), "read");
  SPACE_TRY_VOID(GetStruct(in, "tsc_khz", state.tsc_khz), "read");
  SPACE_TRY(state.msrs, GetMsrs(in), "read");
  SPACE_TRY_VOID(GetStruct(in, "events", state.events), "read");
  // KVM looks at no more than its array holds.
  if (state.xcrs.nr_xcrs > KVM_MAX_XCRS) {
    return Fail(ErrorCode::kInvalidArgument, "too many extended control registers");
  }
  return state;
}

}  // namespace space
