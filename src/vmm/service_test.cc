// The whole monitor but its main, driven over its control socket with guests of a few instructions.
// They run on any /dev/kvm, also one that could not run Linux. Without one: skipped, and said so.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "vmm/service_fixture.h"

namespace space {
namespace {

using namespace std::string_view_literals;

// 32-bit code at 1 MiB.
constexpr auto kPowerOff = "\x66\xba\x00\x06\xb0\x34\xee\xf4\xeb\xfd"sv;  // out 0x600, S5 and go
constexpr auto kReset = "\x66\xba\x02\x06\xb0\x01\xee\xf4\xeb\xfd"sv;     // out 0x602, 1
constexpr auto kKeyboardReset = "\xb0\xfe\xe6\x64\xf4\xeb\xfd"sv;         // out 0x64, 0xfe
// mov word [0x472], 0x1234, then as kReset
constexpr auto kPanic =
    "\x66\xc7\x05\x72\x04\x00\x00\x34\x12\x66\xba\x02\x06\xb0\x01\xee\xf4\xeb\xfd"sv;
constexpr auto kTripleFault = "\x0f\x0b"sv;  // ud2 without an IDT
constexpr auto kSpin = "\xeb\xfe"sv;
constexpr auto kHalt = "\xfa\xf4\xeb\xfd"sv;  // cli, hlt: sleeps inside KVM
// Reads of unclaimed MMIO and port, for ever: mov eax,[0xc0000000]; in al,0x80; jmp back
constexpr auto kPoke = "\xa1\x00\x00\x00\xc0\xe4\x80\xeb\xf7"sv;
// The first device's magic (0x74726976 at 0xd0000000) decides: power off when right, else spin.
constexpr auto kMagic =
    "\xa1\x00\x00\x00\xd0\x3d\x76\x69\x72\x74\x75\xfe\x66\xba\x00\x06\xb0\x34\xee\xf4"sv;

struct EndCase {
  const char* name;
  std::string_view code;
  wire::ExitReason reason;
};
class ServiceEndTest : public ServiceTest, public testing::WithParamInterface<EndCase> {};

TEST_P(ServiceEndTest, Guest_EndsForItsReasonWhichIsRecordedFirst) {
  ASSERT_TRUE(StartCode(GetParam().code).is_ok);
  const wire::Exit exit = NextExit();
  EXPECT_EQ(exit.reason, GetParam().reason) << exit.detail;
  EXPECT_EQ(Record(), wire::EncodeExitRecord(exit));
}

INSTANTIATE_TEST_SUITE_P(
    Reasons, ServiceEndTest,
    testing::Values(EndCase{"PowerOff", kPowerOff, wire::ExitReason::kGuestShutdown},
                    EndCase{"Reset", kReset, wire::ExitReason::kGuestReset},
                    EndCase{"KeyboardReset", kKeyboardReset, wire::ExitReason::kGuestReset},
                    EndCase{"Panic", kPanic, wire::ExitReason::kGuestPanic},
                    EndCase{"TripleFault", kTripleFault, wire::ExitReason::kTripleFault}),
    [](const auto& param) { return param.param.name; });

class ServiceKillTest : public ServiceTest, public testing::WithParamInterface<EndCase> {};

TEST_P(ServiceKillTest, Kill_StopsEveryVcpuWhateverItDoes) {
  wire::StartRequest request;
  request.vcpus = 3;  // two of them never started by the guest
  ASSERT_TRUE(StartCode(GetParam().code, std::move(request)).is_ok);
  Send(7, wire::KillRequest{});
  EXPECT_TRUE(NextReply().is_ok);
  EXPECT_EQ(NextExit().reason, wire::ExitReason::kKilled);
  EXPECT_EQ(Record(), "killed by request\n");
}

INSTANTIATE_TEST_SUITE_P(Guests, ServiceKillTest,
                         testing::Values(EndCase{"Spin", kSpin, {}}, EndCase{"Halt", kHalt, {}},
                                         EndCase{"Poke", kPoke, {}}),
                         [](const auto& param) { return param.param.name; });

TEST_F(ServiceTest, Guest_FindsTheDisksMagicAtTheFirstWindow) {
  wire::StartRequest request;
  request.disks.push_back(
      {"root", {wire::LayerFormat::kRaw, wire::LayerFormat::kSparse}, false, MiB(1)});
  const wire::Reply reply = StartCode(kMagic, std::move(request));
  ASSERT_TRUE(reply.is_ok) << reply.message;
  EXPECT_EQ(NextExit().reason, wire::ExitReason::kGuestShutdown);
}

TEST_F(ServiceTest, Sigterm_IsAKill) {
  ASSERT_TRUE(StartCode(kSpin).is_ok);
  ::kill(::getpid(), SIGTERM);
  const wire::Exit exit = NextExit();
  EXPECT_EQ(exit.reason, wire::ExitReason::kKilled);
  EXPECT_EQ(exit.detail, "by signal 15");
}

TEST_F(ServiceTest, Start_RefusesAKernelThatIsNotElfAndMayBeTriedAgain) {
  const wire::Reply refused = Start("#!/bin/sh\n" + std::string(100, 'x'));
  EXPECT_FALSE(refused.is_ok);
  EXPECT_NE(refused.message.find("kernel is not an ELF file"), std::string::npos)
      << refused.message;
  ASSERT_TRUE(StartCode(kPowerOff).is_ok);
  EXPECT_EQ(NextExit().reason, wire::ExitReason::kGuestShutdown);
}

TEST_F(ServiceTest, Start_RefusesASecondOne) {
  ASSERT_TRUE(StartCode(kSpin).is_ok);
  const UniqueFd kept = *record_.Duplicate();
  const wire::Reply again = StartCode(kSpin);
  EXPECT_EQ(again.code, ErrorCode::kConflict);
}

TEST_F(ServiceTest, Start_RefusesADiskThatIsNotALayer) {
  wire::StartRequest request;
  request.memory_bytes = MiB(64);
  request.disks.push_back(
      {"root", {wire::LayerFormat::kRaw, wire::LayerFormat::kSparse}, false, MiB(2)});
  const UniqueFd kernel = FileOf(boot::TinyKernel(kSpin).bytes());
  const UniqueFd junk = FileOf(std::string(8192, 'j'));
  Send(1, request, {kernel.get(), junk.get(), junk.get(), junk.get(), junk.get(), junk.get()});
  const wire::Reply reply = NextReply();
  EXPECT_FALSE(reply.is_ok);
  EXPECT_NE(reply.message.find("disk root"), std::string::npos) << reply.message;
}

TEST_F(ServiceTest, Status_FollowsTheLife) {
  Send(3, wire::StatusRequest{});
  std::optional<wire::VmmPacket> packet = Next();
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->id, 3u);
  EXPECT_EQ(std::get<wire::StatusReply>(packet->message).state, wire::VmState::kNew);
  ASSERT_TRUE(StartCode(kSpin).is_ok);
  Send(4, wire::StatusRequest{});
  packet = Next();
  ASSERT_TRUE(packet);
  EXPECT_EQ(std::get<wire::StatusReply>(packet->message).state, wire::VmState::kRunning);
}

TEST_F(ServiceTest, Status_ASlowReaderLosesNothing) {
  ASSERT_TRUE(StartCode(kSpin).is_ok);
  ASSERT_EQ(::fcntl(client_.get(), F_SETFL, O_NONBLOCK), 0);
  uint32_t asked = 0;
  // Until neither direction takes any more: the monitor holds the replies and reads no further.
  for (int quiet = 0; quiet < 100 && asked < 100'000;) {
    const auto sent =
        SendPacket(client_.get(), wire::Encode(wire::VmmPacket{asked + 1, wire::StatusRequest{}}));
    quiet = sent ? 0 : quiet + 1;
    asked += sent ? 1 : 0;
    if (!sent) {
      ASSERT_EQ(sent.error().code(), ErrorCode::kTimeout) << sent.error().message();
      ::usleep(1000);
    }
  }
  ASSERT_LT(asked, 100'000U);
  for (uint32_t id = 1; id <= asked; ++id) {
    const std::optional<wire::VmmPacket> packet = Next();
    ASSERT_TRUE(packet);
    ASSERT_EQ(packet->id, id);
  }
  Send(asked + 1, wire::StatusRequest{});
  EXPECT_TRUE(Next());
}

TEST_F(ServiceTest, Connect_SaysWhyItCannot) {
  Send(5, wire::ConnectRequest{1234});
  EXPECT_EQ(NextReply().code, ErrorCode::kConflict);  // not started
  ASSERT_TRUE(StartCode(kSpin).is_ok);
  Send(6, wire::ConnectRequest{1234});
  EXPECT_EQ(NextReply().code, ErrorCode::kInvalidArgument);  // no descriptor
}

TEST_F(ServiceTest, NextClient_TakesOverOnceTheFirstIsGone) {
  ASSERT_TRUE(StartCode(kSpin).is_ok);
  UniqueFd second = Connect();
  client_ = std::move(second);  // closes the first
  Send(8, wire::StatusRequest{});
  const std::optional<wire::VmmPacket> packet = Next();
  ASSERT_TRUE(packet);
  EXPECT_EQ(std::get<wire::StatusReply>(packet->message).state, wire::VmState::kRunning);
}

TEST_F(ServiceTest, ClientGoneBeforeTheStart_EndsTheProcess) {
  client_ = UniqueFd();
  service_.join();
  has_ended_ = true;
  EXPECT_TRUE(ran_);
}

TEST_F(ServiceTest, BrokenClient_LosesItsConnectionButNotTheVm) {
  ASSERT_TRUE(StartCode(kSpin).is_ok);
  ASSERT_TRUE(SendPacket(client_.get(), "garbage"));
  EXPECT_FALSE(Next());  // closed
  client_ = Connect();
  Send(9, wire::StatusRequest{});
  const std::optional<wire::VmmPacket> packet = Next();
  ASSERT_TRUE(packet);
  EXPECT_EQ(std::get<wire::StatusReply>(packet->message).state, wire::VmState::kRunning);
}

}  // namespace
}  // namespace space
