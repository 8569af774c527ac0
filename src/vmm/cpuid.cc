#include "vmm/cpuid.h"

#include <algorithm>
#include <bit>
#include <string_view>

namespace space {
namespace {

// Bit numbers and fields from the SDM, volume 2A, CPUID, and AMD's APM, volume 3, appendix E.
constexpr uint32_t kVmx = 1u << 5;              // 1, ecx
constexpr uint32_t kX2Apic = 1u << 21;          // 1, ecx
constexpr uint32_t kTscDeadline = 1u << 24;     // 1, ecx
constexpr uint32_t kHypervisor = 1u << 31;      // 1, ecx
constexpr uint32_t kHyperThreading = 1u << 28;  // 1, edx
constexpr uint32_t kSvm = 1u << 2;              // 0x80000001, ecx
constexpr uint32_t kClflushQuadwords = 8;

// Documentation/virt/kvm/x86/cpuid.rst: ASYNC_PF, ASYNC_PF_VMEXIT, ASYNC_PF_INT.
constexpr uint32_t kAsyncPageFaults = 1u << 4 | 1u << 10 | 1u << 14;

uint32_t Replace(uint32_t value, uint32_t shift, uint32_t width, uint32_t field) {
  const uint32_t mask = ((1u << width) - 1) << shift;
  return (value & ~mask) | ((field << shift) & mask);
}

struct Topology {
  uint32_t id;
  uint32_t vcpus;
  uint32_t id_bits;  // of an APIC id that holds every core
};

void SetFeatures(kvm_cpuid_entry2& leaf, const Topology& topology) {
  leaf.ebx = Replace(leaf.ebx, 8, 8, kClflushQuadwords);
  leaf.ebx = Replace(leaf.ebx, 16, 8, 1u << topology.id_bits);
  leaf.ebx = Replace(leaf.ebx, 24, 8, topology.id);
  leaf.ecx = (leaf.ecx & ~kVmx) | kX2Apic | kTscDeadline | kHypervisor;
  leaf.edx = topology.vcpus > 1 ? leaf.edx | kHyperThreading : leaf.edx & ~kHyperThreading;
}

// Deterministic cache parameters, alike on Intel (4) and AMD (0x8000001d): the third level is
// shared by all, the others belong to one core.
void SetCache(kvm_cpuid_entry2& leaf, const Topology& topology) {
  if ((leaf.eax & 0x1f) == 0) {
    return;  // no more caches
  }
  const uint32_t level = (leaf.eax >> 5) & 0x7;
  leaf.eax = Replace(leaf.eax, 14, 12, level >= 3 ? (1u << topology.id_bits) - 1 : 0);
}

void SetIntelCache(kvm_cpuid_entry2& leaf, const Topology& topology) {
  SetCache(leaf, topology);
  if ((leaf.eax & 0x1f) != 0) {
    leaf.eax = Replace(leaf.eax, 26, 6, (1u << topology.id_bits) - 1);
  }
}

// Extended topology: threads, then cores, then the end.
void AppendTopology(kvm::CpuidTable& table, const Topology& topology) {
  for (uint32_t level = 0; level < 3; ++level) {
    kvm_cpuid_entry2 leaf = {};
    leaf.function = 0xb;
    leaf.index = level;
    leaf.flags = KVM_CPUID_FLAG_SIGNIFCANT_INDEX;
    leaf.ecx = level;
    leaf.edx = topology.id;
    if (level == 0) {
      leaf.ebx = 1;
      leaf.ecx |= 1u << 8;
    } else if (level == 1) {
      leaf.eax = topology.id_bits;
      leaf.ebx = topology.vcpus;
      leaf.ecx |= 2u << 8;
    }
    table.push_back(leaf);
  }
}

bool IsKvmSignature(const kvm_cpuid_entry2& leaf) {
  return leaf.ebx == 0x4b4d564b && leaf.ecx == 0x564b4d56 && leaf.edx == 0x4d;
}

void Normalise(kvm_cpuid_entry2& leaf, const Topology& topology) {
  switch (leaf.function) {
    case 0x1:
      SetFeatures(leaf, topology);
      break;
    case 0x4:
      SetIntelCache(leaf, topology);
      break;
    case 0xa:         // Intel's performance counters
    case 0x80000022:  // AMD's
      leaf.eax = leaf.ebx = leaf.ecx = leaf.edx = 0;
      break;
    case 0x80000001:
      leaf.ecx &= ~kSvm;
      break;
    case 0x80000008:
      leaf.ecx = Replace(leaf.ecx, 0, 8, topology.vcpus - 1);
      leaf.ecx = Replace(leaf.ecx, 12, 4, topology.id_bits);
      break;
    case 0x8000000a:  // SVM's own features
      leaf.eax = leaf.ebx = leaf.ecx = leaf.edx = 0;
      break;
    case 0x8000001d:
      SetCache(leaf, topology);
      break;
    case 0x8000001e:
      leaf.eax = topology.id;
      leaf.ebx = Replace(leaf.ebx, 0, 16, topology.id);  // core id, one thread each
      leaf.ecx = 0;                                      // node 0 of 1
      break;
    default:
      break;
  }
}

}  // namespace

kvm::CpuidTable CpuidFor(const kvm::CpuidTable& host, uint32_t id, uint32_t vcpus) {
  const Topology topology{id, vcpus, static_cast<uint32_t>(std::bit_width(vcpus - 1))};
  kvm::CpuidTable table;
  uint32_t kvm_base = 0;
  bool has_topology = false;
  for (kvm_cpuid_entry2 leaf : host) {
    if (leaf.function == 0) {
      has_topology = leaf.eax >= 0xb;
      leaf.eax =
          std::min(leaf.eax, 0x1eu);  // 0x1f, a second extended topology, would be the host's
    }
    if (leaf.function >= 0x40000000 && leaf.function < 0x40010000 && IsKvmSignature(leaf)) {
      kvm_base = leaf.function;
    }
    if (leaf.function == 0xb || leaf.function == 0x1f) {
      continue;
    }
    Normalise(leaf, topology);
    table.push_back(leaf);
  }
  for (kvm_cpuid_entry2& leaf : table) {
    if (kvm_base != 0 && leaf.function == kvm_base + 1) {
      leaf.eax &= ~kAsyncPageFaults;
    }
  }
  if (has_topology) {
    AppendTopology(table, topology);
  }
  return table;
}

}  // namespace space
