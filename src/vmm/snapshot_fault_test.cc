// Snapshots and restores that must fail, and leave the source unharmed.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <random>
#include <span>

#include "vmm/layer_loss.h"
#include "vmm/snapshot_fixture.h"

namespace space {
namespace {

using SnapshotFaultTest = SnapshotTest;

bool HasChild() { return ::waitpid(-1, nullptr, WNOHANG) != -1 || errno != ECHILD; }

TEST_F(SnapshotFaultTest, Snapshot_BeforeTheStartIsAConflict) {
  Send(1, wire::SnapshotRequest{});
  EXPECT_EQ(NextReply().code, ErrorCode::kConflict);
  Send(1, wire::PauseRequest{});
  EXPECT_EQ(NextReply().code, ErrorCode::kConflict);
  Send(1, wire::ResumeRequest{});
  EXPECT_EQ(NextReply().code, ErrorCode::kConflict);
}

TEST_F(SnapshotFaultTest, Snapshot_RefusesWrongDescriptorsAndFields) {
  ASSERT_TRUE(StartCode(kCount).is_ok);
  const UniqueFd state = FileOf("");
  const UniqueFd memory = NewLayer(kMemory);
  const UniqueFd small = NewLayer(kMemory / 2);
  const UniqueFd full = FileOf(std::string(8192, 'x'));
  const auto refused = [&](const std::vector<int>& fds, wire::SnapshotRequest request = {}) {
    Send(1, request, fds);
    return NextReply().code;
  };
  EXPECT_EQ(refused({}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused({state.get(), memory.get(), small.get()}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused({state.get(), small.get()}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused({full.get(), memory.get()}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused({state.get(), full.get()}), ErrorCode::kInvalidArgument);
  wire::SnapshotRequest too_deep;
  too_deep.kept_memory_layers = 1;
  EXPECT_EQ(refused({state.get(), memory.get()}, too_deep), ErrorCode::kInvalidArgument);
  EXPECT_EQ(StateOf(*this), wire::VmState::kRunning);
  TakeOnceCounted(*this, 10);
}

TEST_F(SnapshotFaultTest, Snapshot_AboveItsLimitIsRefusedAndTheGuestGoesOn) {
  ASSERT_TRUE(StartCode(kDirty).is_ok);
  TakeOnceCounted(*this, 5000);
  const UniqueFd state = FileOf("");
  const UniqueFd memory = NewLayer(kMemory);
  for (const bool stays_paused : {false, true}) {
    wire::SnapshotRequest request;
    request.max_bytes = MiB(1);
    request.stays_paused = stays_paused;
    Send(1, request, {state.get(), memory.get()});
    const wire::Reply reply = NextReply();
    EXPECT_EQ(reply.code, ErrorCode::kExhausted) << reply.message;
    EXPECT_EQ(StateOf(*this), wire::VmState::kRunning);
  }
  EXPECT_EQ(*FileSize(state.get()), 0U);
  TakeOnceCounted(*this, 6000);
}

TEST_F(SnapshotFaultTest, Snapshot_WithoutRoomFailsAndTheGuestGoesOn) {
  ASSERT_TRUE(StartCode(kDirty).is_ok);
  TakeOnceCounted(*this, 5000);
  const UniqueFd state = FileOf("");
  // A memory file that may not grow is a disk that is full.
  const UniqueFd memory(::memfd_create("full", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_TRUE(CreateSparseLayer(memory.get(), kMemory));
  ASSERT_EQ(::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_GROW), 0);
  Send(1, wire::SnapshotRequest{}, {state.get(), memory.get()});
  const std::optional<wire::VmmPacket> packet = Next();
  ASSERT_TRUE(packet);
  const auto* reply = std::get_if<wire::SnapshotReply>(&packet->message);
  ASSERT_NE(reply, nullptr);
  EXPECT_NE(reply->error.find("write snapshot"), std::string::npos) << reply->error;
  EXPECT_EQ(StateOf(*this), wire::VmState::kRunning);
  EXPECT_FALSE(HasChild());
  TakeOnceCounted(*this, 6000);
}

TEST_F(SnapshotFaultTest, Snapshot_WhileAnotherIsWrittenIsAConflict) {
  ASSERT_TRUE(StartCode(kDirty).is_ok);
  TakeOnceCounted(*this, 5000);
  const UniqueFd state = FileOf("");
  const UniqueFd memory = NewLayer(kMemory);
  // Both are there before the first is served; its child writes 16 MiB meanwhile.
  Send(1, wire::SnapshotRequest{}, {state.get(), memory.get()});
  Send(2, wire::SnapshotRequest{}, {state.get(), memory.get()});
  std::optional<wire::VmmPacket> packet = Next();
  ASSERT_TRUE(packet);
  ASSERT_EQ(packet->id, 2U);
  EXPECT_EQ(std::get<wire::Reply>(packet->message).code, ErrorCode::kConflict);
  packet = Next();
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->id, 1U);
  EXPECT_EQ(std::get<wire::SnapshotReply>(packet->message).error, "");
}

TEST_F(SnapshotFaultTest, Snapshot_ChildWritesNothingBeforeItIsLetIn) {
  ASSERT_TRUE(StartCode(kDirty).is_ok);
  TakeOnceCounted(*this, 5000);
  for (const bool is_let_in : {false, true}) {
    const UniqueFd state = FileOf("");
    const UniqueFd memory = NewLayer(kMemory);
    auto [ours, theirs] = *MakeSocketPair(SOCK_STREAM);
    ASSERT_TRUE(NameSenders(ours.get()));
    wire::SnapshotRequest request;
    request.child_waits = true;
    Send(1, request, {state.get(), memory.get(), theirs.get()});
    theirs = UniqueFd();
    pollfd ready = {ours.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&ready, 1, 10'000), 1);
    const Result<pid_t> child = ReceiveSender(ours.get());
    ASSERT_TRUE(child) << child.error().message();
    EXPECT_NE(*child, ::getpid());
    EXPECT_EQ(*FileSize(state.get()), 0U);
    if (is_let_in) {
      ASSERT_EQ(::send(ours.get(), "", 1, MSG_NOSIGNAL), 1);
    }
    ours = UniqueFd();
    const std::optional<wire::VmmPacket> packet = Next();
    ASSERT_TRUE(packet);
    const auto* reply = std::get_if<wire::SnapshotReply>(&packet->message);
    ASSERT_NE(reply, nullptr);
    EXPECT_EQ(reply->error.empty(), is_let_in) << reply->error;
    EXPECT_EQ(*FileSize(state.get()) != 0, is_let_in);
  }
}

TEST_F(SnapshotFaultTest, Kill_WhileTheChildWritesLeavesNoChild) {
  ASSERT_TRUE(StartCode(kDirty).is_ok);
  TakeOnceCounted(*this, 5000);
  const UniqueFd state = FileOf("");
  const UniqueFd memory = NewLayer(kMemory);
  Send(1, wire::SnapshotRequest{}, {state.get(), memory.get()});
  Send(2, wire::KillRequest{});
  EXPECT_TRUE(NextReply().is_ok);
  EXPECT_EQ(NextExit().reason, wire::ExitReason::kKilled);
  service_.join();
  EXPECT_FALSE(HasChild());
}

TEST_F(SnapshotFaultTest, Snapshot_ThatStaysPausedLetsNothingRun) {
  ASSERT_TRUE(StartCode(kCount).is_ok);
  TakeOnceCounted(*this, 1000);
  wire::SnapshotRequest request;
  request.stays_paused = true;
  request.is_durable = true;
  const Files first = Take(*this, request);
  EXPECT_EQ(StateOf(*this), wire::VmState::kPaused);
  const Files second = Take(*this, {});
  EXPECT_EQ(second.Word(kCounters), first.Word(kCounters));
  EXPECT_EQ(StateOf(*this), wire::VmState::kPaused);
  const auto pair = *MakeSocketPair(SOCK_STREAM);
  Send(4, wire::ConnectRequest{1234}, {pair.second.get()});
  EXPECT_EQ(NextReply().code, ErrorCode::kConflict);
  ASSERT_TRUE(Ask(*this, wire::ResumeRequest{}).is_ok);
  TakeOnceCounted(*this, first.Word(kCounters) + 1000);
}

TEST_F(SnapshotFaultTest, Disks_NewTopTakesTheWritesAndTheOldOneIsPartOfTheSnapshot) {
  wire::StartRequest start;
  start.disks.push_back(
      {"root", {wire::LayerFormat::kRaw, wire::LayerFormat::kSparse}, false, MiB(1)});
  ASSERT_TRUE(StartCode(kCount, start).is_ok);
  const UniqueFd top = NewLayer(MiB(1));
  std::vector<UniqueFd> tops;
  tops.push_back(*top.Duplicate());
  const Files files = Take(*this, {}, {}, tops);
  ASSERT_TRUE(files.saved);
  ASSERT_EQ(files.saved->disks.size(), 1U);
  EXPECT_EQ(files.saved->disks[0].id, "root");
  EXPECT_TRUE(files.saved->disks[0].has_raw_bottom);
  ASSERT_EQ(files.saved->disks[0].layers.size(), 1U);
  // The old top is frozen, the next snapshot stands on both.
  const UniqueFd next = NewLayer(MiB(1));
  std::vector<UniqueFd> more;
  more.push_back(*next.Duplicate());
  const Files second = Take(*this, {}, {}, more);
  ASSERT_EQ(second.saved->disks[0].layers.size(), 2U);
  EXPECT_EQ(second.saved->disks[0].layers[0], files.saved->disks[0].layers[0]);
  EXPECT_EQ(second.saved->disks[0].layers[1], SparseLayer::Open(*top.Duplicate())->id());
  // Restored only over the layers that it stands on.
  const UniqueFd raw = FileOf(std::string(MiB(1), 'd'));
  const UniqueFd fresh = NewLayer(MiB(1));
  const UniqueFd wrong = NewLayer(MiB(1));
  wire::RestoreRequest request;
  request.disks = {
      {"root",
       {wire::LayerFormat::kRaw, wire::LayerFormat::kSparse, wire::LayerFormat::kSparse},
       false,
       MiB(1)}};
  const wire::Reply refused = Restore(files, request, {raw.get(), wrong.get(), fresh.get()});
  EXPECT_FALSE(refused.is_ok);
  EXPECT_NE(refused.message.find("layers are not those"), std::string::npos) << refused.message;
  EXPECT_NE(refused.message.find("root"), std::string::npos) << refused.message;
}

TEST_F(SnapshotFaultTest, Restore_RefusesForeignAndCutLayersByTheirPlace) {
  ASSERT_TRUE(StartCode(kCount).is_ok);
  Files files = TakeOnceCounted(*this, 10);
  Files foreign = TakeOnceCounted(*this, 10);
  std::swap(files.memory, foreign.memory);
  const wire::Reply wrong = Restore(files);
  EXPECT_FALSE(wrong.is_ok);
  EXPECT_NE(wrong.message.find("memory layer 0"), std::string::npos) << wrong.message;
  std::swap(files.memory, foreign.memory);
  ASSERT_EQ(::ftruncate(files.memory[0].get(), 64 << 10), 0);
  const wire::Reply cut = RestoreInto(*other_, files);
  EXPECT_FALSE(cut.is_ok);
  EXPECT_EQ(StateOf(*other_), wire::VmState::kNew);
  // The same process may be given the right ones.
  const wire::Reply right = RestoreInto(*other_, foreign);
  EXPECT_TRUE(right.is_ok) << right.message;
}

TEST_F(SnapshotFaultTest, Restore_Twice_IsAConflict) {
  ASSERT_TRUE(StartCode(kCount).is_ok);
  const Files files = TakeOnceCounted(*this, 10);
  EXPECT_EQ(RestoreInto(*this, files).code, ErrorCode::kConflict);
}

TEST_F(SnapshotFaultTest, LayerCutUnderARunningGuest_EndsTheVmWithThatReason) {
  ASSERT_TRUE(StartCode(kDirty).is_ok);
  const Files files = TakeOnceCounted(*this, 5000);
  const wire::Reply restored = Restore(files);
  ASSERT_TRUE(restored.is_ok) << restored.message;
  ASSERT_EQ(::ftruncate(files.memory[0].get(), 4096), 0);
  ASSERT_TRUE(Ask(*other_, wire::ResumeRequest{}).is_ok);
  const wire::Exit exit = other_->NextExit();
  EXPECT_EQ(exit.reason, wire::ExitReason::kLayerLost) << exit.detail;
  EXPECT_EQ(other_->Record(), wire::EncodeExitRecord(exit));
}

TEST(LayerLossTest, BusError_WritesTheRecordAndEnds) {
  const UniqueFd record = *CreateMemfd("record");
  const UniqueFd layer = *CreateMemfd("layer");
  ASSERT_EQ(::ftruncate(layer.get(), 4096), 0);
  const auto* page = static_cast<const volatile char*>(
      ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, layer.get(), 0));
  ASSERT_NE(page, MAP_FAILED);
  ASSERT_EQ(::ftruncate(layer.get(), 0), 0);
  EXPECT_EXIT(
      {
        EndOnLayerLoss(record.get());
        static_cast<void>(*page);
      },
      testing::ExitedWithCode(1), "");
  std::string text(256, '\0');
  text.resize(static_cast<size_t>(::pread(record.get(), text.data(), text.size(), 0)));
  const Result<wire::Exit> exit = wire::DecodeExitRecord(text);
  ASSERT_TRUE(exit) << text;
  EXPECT_EQ(exit->reason, wire::ExitReason::kLayerLost);
}

TEST_F(SnapshotFaultTest, WorkingSet_IsRecordedAndFilledIn) {
  ASSERT_TRUE(StartCode(kDirty).is_ok);
  const Files files = TakeOnceCounted(*this, 5000);
  const UniqueFd set = FileOf("");
  Send(1, wire::WorkingSetRequest{}, {set.get()});
  ASSERT_TRUE(NextReply().is_ok);
  EXPECT_GT(*FileSize(set.get()), 32U);
  wire::RestoreRequest request;
  request.has_working_set = true;
  const UniqueFd junk = FileOf("junk");
  Files cut;
  other_ = std::make_unique<VmmUnderTest>();
  other_->Begin();
  const UniqueFd log = FileOf("");
  const UniqueFd record = FileOf("");
  request.memory_layers = 1;
  const auto restore = [&](const UniqueFd& working_set) {
    other_->Send(
        5, request,
        {files.state.get(), files.memory[0].get(), log.get(), record.get(), working_set.get()});
    return other_->NextReply();
  };
  const wire::Reply refused = restore(junk);
  EXPECT_NE(refused.message.find("working set"), std::string::npos) << refused.message;
  const wire::Reply restored = restore(set);
  ASSERT_TRUE(restored.is_ok) << restored.message;
  wire::SnapshotRequest kept;
  kept.kept_memory_layers = 1;
  const Files still = Take(*other_, kept, files.memory);
  EXPECT_EQ(still.Word(kCounters), files.Word(kCounters));
  EXPECT_GT(still.reply.dirty_pages, 4000U);  // filled in for writing
}

// Flips some bits of a part of the state that only KVM can judge.
void Damage(SavedState& state, uint32_t part, std::mt19937& random) {
  kvm::VcpuState& vcpu = state.vcpus[0];
  const std::array<std::span<std::byte>, 10> parts = {
      std::as_writable_bytes(std::span(&vcpu.registers, 1)),
      std::as_writable_bytes(std::span(&vcpu.special, 1)),
      std::as_writable_bytes(std::span(&vcpu.events, 1)),
      std::as_writable_bytes(std::span(&vcpu.apic, 1)),
      std::as_writable_bytes(std::span(vcpu.msrs)),
      std::as_writable_bytes(std::span(&vcpu.mp_state, 1)),
      std::as_writable_bytes(std::span(&vcpu.fpu, 1)),
      std::as_writable_bytes(std::span(&vcpu.debug, 1)),
      std::as_writable_bytes(std::span(state.vm.chips)),
      std::as_writable_bytes(std::span(state.time.tsc))};
  const std::span<std::byte> bytes = parts[part % parts.size()];
  for (int flip = 0; flip < 3; ++flip) {
    bytes[random() % bytes.size()] ^= std::byte{1} << random() % 8;
  }
}

TEST_F(SnapshotFaultTest, Restore_OfDamagedStateIsRefusedOrHarmless) {
  ASSERT_TRUE(StartCode(kCount).is_ok);
  Files files = TakeOnceCounted(*this, 10);
  std::mt19937 random(1);
  int restored = 0;
  for (uint32_t round = 0; round < 60; ++round) {
    SavedState damaged = *files.saved;
    Damage(damaged, round, random);
    files.state = FileOf(damaged.Encode());
    if (!other_) {
      other_ = std::make_unique<VmmUnderTest>();
      other_->Begin();
    }
    if (!RestoreInto(*other_, files).is_ok) {
      EXPECT_EQ(StateOf(*other_), wire::VmState::kNew);
      continue;
    }
    ++restored;
    // The guest may die of it at once; the monitor must tell so or be there still.
    other_->Send(6, wire::ResumeRequest{});
    static_cast<void>(other_->Next());
    other_->Send(9, wire::KillRequest{});
    std::optional<wire::VmmPacket> packet = other_->Next();
    while (packet && !std::holds_alternative<wire::ExitEvent>(packet->message)) {
      packet = other_->Next();
    }
    EXPECT_TRUE(packet);
    other_->has_ended_ = true;
    other_->End();
    other_.reset();
  }
  EXPECT_GT(restored, 0);
}

}  // namespace
}  // namespace space
