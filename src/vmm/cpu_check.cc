#include "vmm/cpu_check.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <string_view>

namespace space {
namespace {

enum class Register { kEax, kEbx, kEcx, kEdx };

constexpr std::array<std::string_view, 4> kRegisterNames = {"eax", "ebx", "ecx", "edx"};

// A word of CPUID whose bits are features. SDM volume 2A, APM volume 3, and KVM's own.
struct FeatureWord {
  uint32_t leaf;
  uint32_t index;
  Register part;
  uint32_t ignored;  // bits that the monitor or the guest itself sets
};
constexpr uint32_t kOurs1Ecx = 1u << 21 | 1u << 24 | 1u << 27 | 1u << 31;  // cpuid.cc; OSXSAVE
constexpr uint32_t kOurs1Edx = 1u << 28;
constexpr uint32_t kOspke = 1u << 4;
constexpr std::array<FeatureWord, 19> kWords = {{
    {0x1, 0, Register::kEcx, kOurs1Ecx}, {0x1, 0, Register::kEdx, kOurs1Edx},
    {0x7, 0, Register::kEbx, 0},         {0x7, 0, Register::kEcx, kOspke},
    {0x7, 0, Register::kEdx, 0},         {0x7, 1, Register::kEax, 0},
    {0x7, 1, Register::kEdx, 0},         {0x7, 2, Register::kEdx, 0},
    {0xd, 0, Register::kEax, 0},         {0xd, 0, Register::kEdx, 0},
    {0xd, 1, Register::kEax, 0},         {0xd, 1, Register::kEcx, 0},
    {0x14, 0, Register::kEbx, 0},        {0x80000001, 0, Register::kEcx, 0},
    {0x80000001, 0, Register::kEdx, 0},  {0x80000007, 0, Register::kEdx, 0},
    {0x80000008, 0, Register::kEbx, 0},  {0x80000021, 0, Register::kEax, 0},
    {0x40000001, 0, Register::kEax, 0},
}};

struct FeatureName {
  uint32_t leaf;
  Register part;
  uint32_t bit;
  std::string_view name;
};
// As in /proc/cpuinfo; what is not here is named by its place.
constexpr std::array<FeatureName, 40> kNames = {{
    {0x1, Register::kEcx, 0, "sse3"},           {0x1, Register::kEcx, 1, "pclmulqdq"},
    {0x1, Register::kEcx, 9, "ssse3"},          {0x1, Register::kEcx, 12, "fma"},
    {0x1, Register::kEcx, 13, "cx16"},          {0x1, Register::kEcx, 17, "pcid"},
    {0x1, Register::kEcx, 19, "sse4_1"},        {0x1, Register::kEcx, 20, "sse4_2"},
    {0x1, Register::kEcx, 22, "movbe"},         {0x1, Register::kEcx, 23, "popcnt"},
    {0x1, Register::kEcx, 25, "aes"},           {0x1, Register::kEcx, 26, "xsave"},
    {0x1, Register::kEcx, 28, "avx"},           {0x1, Register::kEcx, 29, "f16c"},
    {0x1, Register::kEcx, 30, "rdrand"},        {0x7, Register::kEbx, 0, "fsgsbase"},
    {0x7, Register::kEbx, 3, "bmi1"},           {0x7, Register::kEbx, 5, "avx2"},
    {0x7, Register::kEbx, 7, "smep"},           {0x7, Register::kEbx, 8, "bmi2"},
    {0x7, Register::kEbx, 9, "erms"},           {0x7, Register::kEbx, 10, "invpcid"},
    {0x7, Register::kEbx, 16, "avx512f"},       {0x7, Register::kEbx, 17, "avx512dq"},
    {0x7, Register::kEbx, 18, "rdseed"},        {0x7, Register::kEbx, 19, "adx"},
    {0x7, Register::kEbx, 20, "smap"},          {0x7, Register::kEbx, 21, "avx512ifma"},
    {0x7, Register::kEbx, 28, "avx512cd"},      {0x7, Register::kEbx, 29, "sha_ni"},
    {0x7, Register::kEbx, 30, "avx512bw"},      {0x7, Register::kEbx, 31, "avx512vl"},
    {0x7, Register::kEcx, 2, "umip"},           {0x7, Register::kEcx, 3, "pku"},
    {0x7, Register::kEcx, 22, "rdpid"},         {0x80000001, Register::kEcx, 5, "abm"},
    {0x80000001, Register::kEdx, 20, "nx"},     {0x80000001, Register::kEdx, 26, "pdpe1gb"},
    {0x80000001, Register::kEdx, 27, "rdtscp"}, {0x80000007, Register::kEdx, 8, "invariant tsc"},
}};

const kvm_cpuid_entry2* Find(const kvm::CpuidTable& table, uint32_t leaf, uint32_t index) {
  const auto found = std::ranges::find_if(table, [&](const kvm_cpuid_entry2& entry) {
    const bool has_index = (entry.flags & KVM_CPUID_FLAG_SIGNIFCANT_INDEX) != 0;
    return entry.function == leaf && (has_index ? entry.index == index : index == 0);
  });
  return found == table.end() ? nullptr : &*found;
}

uint32_t Part(const kvm_cpuid_entry2* entry, Register part) {
  if (entry == nullptr) {
    return 0;
  }
  switch (part) {
    case Register::kEax:
      return entry->eax;
    case Register::kEbx:
      return entry->ebx;
    case Register::kEcx:
      return entry->ecx;
    case Register::kEdx:
      return entry->edx;
  }
  return 0;
}

std::string NameOf(const FeatureWord& word, uint32_t bit) {
  for (const FeatureName& name : kNames) {
    if (word.index == 0 && name.leaf == word.leaf && name.part == word.part && name.bit == bit) {
      return std::string(name.name);
    }
  }
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "leaf 0x%x.%u %s bit %u", word.leaf, word.index,
                kRegisterNames[static_cast<size_t>(word.part)].data(), bit);
  return text.data();
}

std::string VendorOf(const kvm::CpuidTable& table) {
  const kvm_cpuid_entry2* entry = Find(table, 0, 0);
  std::string vendor;
  for (const Register part : {Register::kEbx, Register::kEdx, Register::kEcx}) {
    const uint32_t word = Part(entry, part);
    for (int shift = 0; shift < 32; shift += 8) {
      const auto byte = static_cast<char>(word >> shift);
      vendor += byte >= ' ' && byte <= '~' ? byte : '?';
    }
  }
  return vendor;
}

}  // namespace

Result<void> CheckCpu(const kvm::CpuidTable& saved, const kvm::CpuidTable& host) {
  if (VendorOf(saved) != VendorOf(host)) {
    return Fail(ErrorCode::kUnimplemented, "the snapshot is of a machine with a processor by " +
                                               VendorOf(saved) + ", this host's is by " +
                                               VendorOf(host));
  }
  std::string missing;
  size_t count = 0;
  for (const FeatureWord& word : kWords) {
    const uint32_t promised = Part(Find(saved, word.leaf, word.index), word.part) & ~word.ignored;
    const uint32_t lacking = promised & ~Part(Find(host, word.leaf, word.index), word.part);
    for (uint32_t bit = 0; bit < 32; ++bit) {
      if ((lacking >> bit & 1) != 0 && ++count <= 8) {
        missing += (missing.empty() ? "" : ", ") + NameOf(word, bit);
      }
    }
  }
  if (count == 0) {
    return {};
  }
  return Fail(ErrorCode::kUnimplemented,
              "this host's processor or KVM lacks what the snapshot's guest was promised: " +
                  missing + (count > 8 ? " and " + std::to_string(count - 8) + " more" : ""));
}

}  // namespace space
