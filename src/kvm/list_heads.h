// Heads of KVM's variable-length requests, and the ioctl numbers made of them. The kernel header
// declares the lists behind them as flexible arrays in a way that C++ lays out differently from C
// (an empty struct has a size here), so its sizes, offsets and ioctl numbers are wrong in C++.
#pragma once

#include <linux/kvm.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace space::kvm {

// Of kvm_cpuid2 and kvm_msrs: entries follow at offset 8.
struct ListHead {
  uint32_t count = 0;
  uint32_t padding = 0;
};
static_assert(sizeof(ListHead) == 8);

// Of kvm_msr_list: `count` indices follow at offset 4.
struct MsrListHead {
  uint32_t count = 0;
};
static_assert(sizeof(MsrListHead) == 4);

// Of kvm_signal_mask: `count` bytes of signal set follow at offset 4.
struct SignalMaskHead {
  uint32_t length = 0;
};
static_assert(sizeof(SignalMaskHead) == 4);

constexpr unsigned long kGetSupportedCpuid = _IOWR(KVMIO, 0x05, ListHead);
constexpr unsigned long kSetCpuid2 = _IOW(KVMIO, 0x90, ListHead);
constexpr unsigned long kGetMsrs = _IOWR(KVMIO, 0x88, ListHead);
constexpr unsigned long kSetMsrs = _IOW(KVMIO, 0x89, ListHead);
constexpr unsigned long kSetSignalMask = _IOW(KVMIO, 0x8b, SignalMaskHead);
constexpr unsigned long kGetMsrIndexList = _IOWR(KVMIO, 0x02, MsrListHead);
static_assert(kGetMsrs == 0xc008ae88 && kGetMsrIndexList == 0xc004ae02);
static_assert(kGetSupportedCpuid == 0xc008ae05 && kSetCpuid2 == 0x4008ae90);
static_assert(kSetMsrs == 0x4008ae89 && kSetSignalMask == 0x4004ae8b);

// A head and its entries in one piece of memory, as the ioctls want them.
template <class Entry>
class List {
 public:
  explicit List(size_t count) : words_((sizeof(ListHead) + count * sizeof(Entry) + 7) / 8) {
    set_count(count);
  }
  explicit List(std::span<const Entry> entries) : List(entries.size()) {
    std::memcpy(data() + sizeof(ListHead), entries.data(), entries.size_bytes());
  }
  std::byte* data() { return reinterpret_cast<std::byte*>(words_.data()); }
  // What the kernel says is there, never more than there is room for.
  std::vector<Entry> Entries() {
    ListHead head;
    std::memcpy(&head, data(), sizeof(head));
    const size_t room = (words_.size() * sizeof(uint64_t) - sizeof(ListHead)) / sizeof(Entry);
    std::vector<Entry> entries(head.count < room ? head.count : room);
    std::memcpy(entries.data(), data() + sizeof(ListHead), entries.size() * sizeof(Entry));
    return entries;
  }

 private:
  void set_count(size_t count) {
    const ListHead head{static_cast<uint32_t>(count), 0};
    std::memcpy(data(), &head, sizeof(head));
  }
  std::vector<uint64_t> words_;
};

}  // namespace space::kvm
