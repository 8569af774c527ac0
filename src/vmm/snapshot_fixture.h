// For tests: small guests that count, snapshots of them, and a second monitor of the same process.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "kvm/system.h"
#include "vmm/restore_config.h"
#include "vmm/saved_state.h"
#include "vmm/service_fixture.h"

namespace space {

using namespace std::string_view_literals;

constexpr uint64_t kCounters = 0x200000;
constexpr uint64_t kMemory = MiB(64);

// inc [kCounters]; inc [kCounters + 4]; again
constexpr auto kCount = "\xff\x05\x00\x00\x20\x00\xff\x05\x04\x00\x20\x00\xeb\xf2"sv;

// As kCount, and each time a dword of another page gets the counter's value (16 MiB from 4 MiB on):
// mov eax,[kCounters]; mov ebx,eax; and ebx,0xfff; shl ebx,12; mov [ebx+0x400000],eax
constexpr auto kDirty =
    "\xff\x05\x00\x00\x20\x00\xff\x05\x04\x00\x20\x00"
    "\xa1\x00\x00\x20\x00\x89\xc3\x81\xe3\xff\x0f\x00\x00\xc1\xe3\x0c"
    "\x89\x83\x00\x00\x40\x00\xeb\xdc"sv;

// Keeps the largest step between two readings of the TSC at kCounters:
// rdtsc; mov ebx,eax; L: rdtsc; mov ecx,eax; sub eax,ebx; mov ebx,ecx; cmp eax,[kCounters];
// jbe L; mov [kCounters],eax; jmp L
constexpr auto kTscSteps =
    "\x0f\x31\x89\xc3\x0f\x31\x89\xc1\x29\xd8\x89\xcb\x3b\x05\x00\x00\x20\x00\x76\xf0"
    "\xa3\x00\x00\x20\x00\xeb\xe9"sv;

// What a snapshot left behind.
struct Files {
  UniqueFd state;
  std::vector<UniqueFd> memory;              // bottom first
  std::vector<std::vector<UniqueFd>> disks;  // frozen layers
  wire::SnapshotReply reply;
  std::optional<SavedState> saved;

  // From the topmost layer of the chain that has the page; zero when none.
  uint32_t Word(uint64_t address) const {
    for (size_t at = memory.size(); at-- > 0;) {
      const auto layer = SparseLayer::Open(*memory[at].Duplicate());
      if (!layer || layer->StateOf(address / 4096) == PageState::kAbsent) {
        continue;
      }
      uint32_t value = 0;
      if (layer->StateOf(address / 4096) == PageState::kPresent) {
        EXPECT_TRUE(PreadFull(memory[at].get(), std::as_writable_bytes(std::span(&value, 1)),
                              SparseLayer::FileOffset(address / 4096) + address % 4096));
      }
      return value;
    }
    return 0;
  }
};

inline UniqueFd NewLayer(uint64_t bytes) {
  UniqueFd fd = *CreateMemfd("layer");
  EXPECT_TRUE(CreateSparseLayer(fd.get(), bytes));
  return fd;
}

// Some nested hosts take an offset and give the guest their own TSC all the same.
inline bool HostOffsetsTsc() {
  const kvm::System system = *kvm::System::Create(*OpenReadWrite("/dev/kvm"));
  const kvm::Vm vm = *system.CreateVm();
  const kvm::Vcpu vcpu = *vm.CreateVcpu(0);
  constexpr uint64_t kFarAway = 1ULL << 60;
  return vcpu.SetMsr(kvm::kMsrTsc, kFarAway) && *vcpu.Msr(kvm::kMsrTsc) >= kFarAway;
}

class SnapshotTest : public ServiceTest {
 protected:
  void TearDown() override {
    if (other_) {
      other_->End();
    }
    ServiceTest::TearDown();
  }

  // Of `vmm`, whose memory stands on `below`; waits for the reply.
  static Files Take(VmmUnderTest& vmm, wire::SnapshotRequest request,
                    const std::vector<UniqueFd>& below = {},
                    const std::vector<UniqueFd>& tops = {}) {
    Files files;
    files.state = *CreateMemfd("state");
    for (uint32_t at = 0; at < request.kept_memory_layers; ++at) {
      files.memory.push_back(*below[at].Duplicate());
    }
    files.memory.push_back(NewLayer(kMemory));
    std::vector<int> fds{files.state.get(), files.memory.back().get()};
    for (const UniqueFd& top : tops) {
      fds.push_back(top.get());
    }
    vmm.Send(7, request, fds);
    const std::optional<wire::VmmPacket> packet = vmm.Next();
    const auto* reply = packet ? std::get_if<wire::SnapshotReply>(&packet->message) : nullptr;
    if (reply == nullptr) {
      const auto* refused = packet ? std::get_if<wire::Reply>(&packet->message) : nullptr;
      ADD_FAILURE() << "no snapshot: " << (refused != nullptr ? refused->message : "");
      return files;
    }
    files.reply = *reply;
    if (reply->error.empty()) {
      auto state = SavedState::Decode(*ReadWhole(files.state.get(), SavedState::kMaxBytes));
      EXPECT_TRUE(state) << (state ? "" : state.error().message());
      files.saved = state ? std::optional(*std::move(state)) : std::nullopt;
    }
    return files;
  }
  // Until the guest's first counter is at least `value`.
  static Files TakeOnceCounted(VmmUnderTest& vmm, uint32_t value,
                               const std::vector<UniqueFd>& below = {}) {
    for (int tried = 0; tried < 1000; ++tried) {
      wire::SnapshotRequest request;
      request.kept_memory_layers = static_cast<uint32_t>(below.size());
      Files files = Take(vmm, request, below);
      if (testing::Test::HasFailure() || files.Word(kCounters) >= value) {
        return files;
      }
    }
    ADD_FAILURE() << "the guest does not count";
    return {};
  }
  // A second monitor with the machine of `files`, paused.
  wire::Reply Restore(const Files& files, wire::RestoreRequest request = {},
                      const std::vector<int>& disk_fds = {}) {
    other_ = std::make_unique<VmmUnderTest>();
    other_->Begin();
    return RestoreInto(*other_, files, std::move(request), disk_fds);
  }
  static wire::Reply RestoreInto(VmmUnderTest& vmm, const Files& files,
                                 wire::RestoreRequest request = {},
                                 const std::vector<int>& disk_fds = {}) {
    request.memory_layers = static_cast<uint32_t>(files.memory.size());
    std::vector<int> fds{files.state.get()};
    for (const UniqueFd& layer : files.memory) {
      fds.push_back(layer.get());
    }
    fds.insert(fds.end(), disk_fds.begin(), disk_fds.end());
    const UniqueFd log = VmmUnderTest::FileOf("");
    const UniqueFd record = VmmUnderTest::FileOf("");
    vmm.record_ = *record.Duplicate();
    fds.push_back(log.get());
    fds.push_back(record.get());
    vmm.Send(5, std::move(request), fds);
    return vmm.NextReply();
  }
  static wire::Reply Ask(VmmUnderTest& vmm, wire::VmmMessage message) {
    vmm.Send(6, std::move(message));
    return vmm.NextReply();
  }
  static wire::VmState StateOf(VmmUnderTest& vmm) {
    vmm.Send(8, wire::StatusRequest{});
    const std::optional<wire::VmmPacket> packet = vmm.Next();
    const auto* status = packet ? std::get_if<wire::StatusReply>(&packet->message) : nullptr;
    return status != nullptr ? status->state : wire::VmState::kExited;
  }

  std::unique_ptr<VmmUnderTest> other_;
};

}  // namespace space
