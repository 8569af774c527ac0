// The state file: what is written is read, and nothing else is.
#include "vmm/saved_state.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/fd.h"
#include "base/units.h"
#include "state/state.h"
#include "vmm/cpu_check.h"
#include "vmm/vcpu_codec.h"

namespace space {
namespace {

// Of a machine with two vCPUs, a serial port and a disk, that ran a guest of a few instructions.
std::string Golden() {
  return *ReadFile(std::string(SPACE_TEST_DATA) + "/state-1.bin", SavedState::kMaxBytes);
}

TEST(SavedStateTest, Decode_ReadsTheFirstVersion) {
  const std::string bytes = Golden();
  const Result<SavedState> state = SavedState::Decode(bytes);
  ASSERT_TRUE(state) << state.error().message();
  EXPECT_EQ(state->memory_bytes, MiB(64));
  EXPECT_TRUE(state->has_serial);
  ASSERT_EQ(state->vcpus.size(), 2U);
  EXPECT_EQ(state->time.tsc.size(), 2U);
  EXPECT_GT(state->time.clock_ns, 0U);
  EXPECT_NE(state->vcpus[0].registers.rip, 0U);
  EXPECT_FALSE(state->vcpus[0].cpuid.empty());
  EXPECT_FALSE(state->vcpus[0].msrs.empty());
  ASSERT_EQ(state->disks.size(), 1U);
  EXPECT_EQ(state->disks[0].id, "root");
  EXPECT_EQ(state->disks[0].size_bytes, MiB(1));
  EXPECT_EQ(state->disks[0].layers.size(), 1U);
  EXPECT_EQ(state->memory_layers.size(), 1U);
  EXPECT_FALSE(state->memory_map.extents().empty());
  ASSERT_EQ(state->devices.size(), 3U);
  EXPECT_EQ(state->devices[0].name, "block");
  EXPECT_EQ(state->devices[1].name, "vsock");
  EXPECT_EQ(state->devices[2].name, "rng");
  EXPECT_EQ(state->Encode(), bytes);
}

TEST(SavedStateTest, Decode_SkipsSectionsThatItDoesNotKnow) {
  const std::string golden = Golden();
  const Result<StateReader> in = StateReader::Parse(golden);
  ASSERT_TRUE(in);
  StateWriter out;
  out.Add("something.new", 9, "body");
  for (const StateSection& section : in->sections()) {
    out.Add(section.name, section.version, section.body);
  }
  EXPECT_TRUE(SavedState::Decode(std::move(out).Take()));
}

TEST(SavedStateTest, Decode_RefusesEachMissingOrLaterSectionByName) {
  const std::string golden = Golden();
  const Result<StateReader> in = StateReader::Parse(golden);
  ASSERT_TRUE(in);
  for (const StateSection& changed : in->sections()) {
    if (changed.name.starts_with("device.")) {
      continue;  // fewer devices are another machine, which Restore refuses
    }
    for (const bool is_later : {false, true}) {
      StateWriter out;
      for (const StateSection& section : in->sections()) {
        const bool is_this = section.name == changed.name;
        if (!is_this || is_later) {
          out.Add(section.name, is_this ? 2 : section.version, section.body);
        }
      }
      const Result<SavedState> state = SavedState::Decode(std::move(out).Take());
      ASSERT_FALSE(state) << changed.name;
      EXPECT_NE(state.error().message().find(changed.name), std::string::npos)
          << state.error().message();
    }
  }
}

TEST(SavedStateTest, Decode_RefusesTruncationsAndFlippedBits) {
  const std::string golden = Golden();
  // Every place near the ends, a prime step between.
  for (size_t size = 0; size < golden.size(); size += size < 256 ? 1 : 97) {
    EXPECT_FALSE(SavedState::Decode(std::string_view(golden).substr(0, size))) << size;
  }
  std::string bytes = golden;
  for (size_t bit = 0; bit < golden.size() * 8; bit += bit < 4096 ? 1 : 211) {
    bytes[bit / 8] = static_cast<char>(golden[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(SavedState::Decode(bytes)) << bit;
    bytes[bit / 8] = golden[bit / 8];
  }
}

TEST(SavedStateTest, Decode_RefusesWhatDoesNotFitTogether) {
  SavedState state = *SavedState::Decode(Golden());
  const auto refused = [&](const auto& change) {
    SavedState changed = state;
    change(changed);
    return !SavedState::Decode(changed.Encode()).has_value();
  };
  EXPECT_TRUE(refused([](SavedState& s) { s.memory_bytes = 0; }));
  EXPECT_TRUE(refused([](SavedState& s) { s.memory_bytes += 4096; }));
  EXPECT_TRUE(refused([](SavedState& s) { s.memory_bytes = 1ULL << 60; }));
  EXPECT_TRUE(refused([](SavedState& s) { s.memory_layers.clear(); }));  // the map names one
  EXPECT_TRUE(refused([](SavedState& s) { s.vcpus.pop_back(); }));       // time is for two
  EXPECT_TRUE(refused([](SavedState& s) { s.vcpus.clear(); }));
  EXPECT_TRUE(refused([](SavedState& s) { s.vcpus[0].cpuid.resize(257); }));
  EXPECT_TRUE(refused([](SavedState& s) { s.vcpus[0].cpuid.clear(); }));
  EXPECT_TRUE(refused([](SavedState& s) { s.vcpus[1].msrs.resize(1025); }));
  EXPECT_TRUE(refused([](SavedState& s) { s.vcpus[1].xsave.resize(4095); }));
  EXPECT_TRUE(refused([](SavedState& s) { s.vcpus[1].xsave.resize(1 << 20); }));
  EXPECT_TRUE(refused([](SavedState& s) { s.vcpus[0].xcrs.nr_xcrs = 17; }));
  EXPECT_TRUE(refused([](SavedState& s) { s.disks.resize(9); }));
  EXPECT_TRUE(refused([](SavedState& s) { s.disks[0].id = std::string(100, 'x'); }));
  EXPECT_TRUE(refused([](SavedState& s) { s.disks[0].layers.resize(65); }));
  EXPECT_TRUE(refused([](SavedState& s) { s.devices.resize(1, {}), s.devices[0].state = "x"; }));
  EXPECT_TRUE(refused([](SavedState& s) { s.serial = "x"; }));
}

TEST(CpuCheckTest, CheckCpu_NamesWhatIsMissing) {
  const SavedState state = *SavedState::Decode(Golden());
  const kvm::CpuidTable& host = state.vcpus[0].cpuid;
  EXPECT_TRUE(CheckCpu(host, host));
  kvm::CpuidTable promised = host;
  kvm::CpuidTable lacking = host;
  for (auto* table : {&promised, &lacking}) {
    std::erase_if(*table, [](const auto& entry) { return entry.function == 7; });
    kvm_cpuid_entry2 leaf = {};
    leaf.function = 7;
    leaf.flags = KVM_CPUID_FLAG_SIGNIFCANT_INDEX;
    leaf.ebx = table == &promised ? 1U << 5 | 1U << 16 | 1U << 22 : 1U << 9;
    table->push_back(leaf);
  }
  const Result<void> checked = CheckCpu(promised, lacking);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().code(), ErrorCode::kUnimplemented);
  for (const char* name : {"avx2", "avx512f", "leaf 0x7.0 ebx bit 22"}) {
    EXPECT_NE(checked.error().message().find(name), std::string::npos) << checked.error().message();
  }
}

TEST(CpuCheckTest, CheckCpu_RefusesAnotherVendor) {
  const SavedState state = *SavedState::Decode(Golden());
  kvm::CpuidTable other = state.vcpus[0].cpuid;
  for (kvm_cpuid_entry2& entry : other) {
    if (entry.function == 0) {
      entry.ebx ^= 1;
    }
  }
  EXPECT_FALSE(CheckCpu(state.vcpus[0].cpuid, other));
}

TEST(CpuCheckTest, CheckCpu_DoesNotMindWhatTheMonitorAddsItself) {
  const SavedState state = *SavedState::Decode(Golden());
  kvm::CpuidTable host = state.vcpus[0].cpuid;
  for (kvm_cpuid_entry2& entry : host) {
    if (entry.function == 1) {
      entry.ecx &= ~(1U << 21 | 1U << 24 | 1U << 27 | 1U << 31);
      entry.edx &= ~(1U << 28);
    }
  }
  EXPECT_TRUE(CheckCpu(state.vcpus[0].cpuid, host));
}

}  // namespace
}  // namespace space
