#include <sys/epoll.h>

#include <algorithm>

#include <gtest/gtest.h>

#include "devices/vsock/vsock_fixture.h"
#include "state/state.h"

namespace space {
namespace {

TEST_F(VsockTest, Connect_SendsRequestAndIsAnsweredOnce) {
  Open();
  EXPECT_EQ(opened_.operation, vsock::kRequest);
  EXPECT_EQ(opened_.source_cid, 2U);
  EXPECT_EQ(opened_.destination_cid, 3U);
  EXPECT_EQ(opened_.source_port, 0x40000000U);
  EXPECT_EQ(opened_.destination_port, kPort);
  EXPECT_EQ(opened_.buffer_bytes, 64U << 10);
  EXPECT_EQ(opened_.type, 1);
}

TEST_F(VsockTest, Data_GoesBothWays) {
  Open();
  HostWrites("hello guest");
  const auto packets = guest_.TakePackets();
  ASSERT_EQ(packets.size(), 1U);
  EXPECT_EQ(packets[0].payload, "hello guest");
  ASSERT_TRUE(SendData("hello host").has_value());
  EXPECT_EQ(HostReads(), "hello host");
}

TEST_F(VsockTest, Connect_RefusedByTheGuest) {
  guest_.AddBuffers(4);
  Connect();
  const PacketHeader request = guest_.TakePackets().at(0).header;
  ASSERT_TRUE(guest_.Send(guest_.Header(request, vsock::kReset)).has_value());
  ASSERT_EQ(outcomes_.size(), 1U);
  EXPECT_EQ(outcomes_[0].error().code(), ErrorCode::kUnavailable);
  EXPECT_EQ(HostReads(), "EOF");
  EXPECT_EQ(Operations(), Ops{});
  EXPECT_EQ(guest_.device->connection_count(), 0U);
}

TEST_F(VsockTest, Connect_TimesOutWhenTheGuestIsSilent) {
  guest_.AddBuffers(4);
  Connect();
  guest_.now += VsockDevice::kConnectTimeout - std::chrono::milliseconds(1);
  ASSERT_TRUE(guest_.device->OnHostReady(VsockDevice::kTimerToken, EPOLLIN).has_value());
  EXPECT_TRUE(outcomes_.empty());
  guest_.now += std::chrono::milliseconds(1);
  ASSERT_TRUE(guest_.device->OnHostReady(VsockDevice::kTimerToken, EPOLLIN).has_value());
  ASSERT_EQ(outcomes_.size(), 1U);
  EXPECT_EQ(outcomes_[0].error().code(), ErrorCode::kTimeout);
  EXPECT_EQ(Operations(), (Ops{vsock::kRequest, vsock::kReset}));
}

TEST_F(VsockTest, Connect_WaitsForTheDriver) {
  FakeVsockGuest late;
  auto pair = *MakeSocketPair(SOCK_STREAM);
  std::vector<Result<void>> outcomes;
  const auto note = [&](Result<void> outcome) { outcomes.push_back(outcome); };
  ASSERT_TRUE(late.device->Connect(kPort, std::move(pair.second), note).has_value());
  late.BringUp();
  late.AddBuffers(4);
  const auto packets = late.TakePackets();
  ASSERT_EQ(packets.size(), 1U);
  ASSERT_TRUE(late.Send(late.Header(packets[0].header, vsock::kResponse)).has_value());
  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_TRUE(outcomes[0].has_value());
}

TEST_F(VsockTest, Connect_TimesOutWithoutADriver) {
  FakeVsockGuest absent;
  auto pair = *MakeSocketPair(SOCK_STREAM);
  std::vector<Result<void>> outcomes;
  const auto note = [&](Result<void> outcome) { outcomes.push_back(outcome); };
  ASSERT_TRUE(absent.device->Connect(kPort, std::move(pair.second), note).has_value());
  absent.now += VsockDevice::kConnectTimeout;
  ASSERT_TRUE(absent.device->OnHostReady(VsockDevice::kTimerToken, EPOLLIN).has_value());
  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_EQ(outcomes[0].error().code(), ErrorCode::kTimeout);
}

TEST_F(VsockTest, Connect_GivenUpByTheHostIsResetInTheGuest) {
  guest_.AddBuffers(4);
  Connect();
  host_ = UniqueFd();
  ASSERT_TRUE(guest_.Poll());
  EXPECT_EQ(Operations(), (Ops{vsock::kRequest, vsock::kReset}));
  EXPECT_EQ(outcomes_.at(0).error().code(), ErrorCode::kUnavailable);
}

TEST_F(VsockTest, Connect_BeyondTheLimitIsRefusedAndTheDaemonHasAFewMore) {
  // Descriptors of the test itself are scarce, so all streams share one socket.
  auto pair = *MakeSocketPair(SOCK_STREAM);
  int answers = 0;
  const auto note = [&](const Result<void>&) { ++answers; };
  constexpr size_t kForClients = VsockDevice::kMaxConnections - VsockDevice::kReserved;
  for (size_t at = 0; at < kForClients; ++at) {
    ASSERT_TRUE(guest_.device->Connect(kPort, UniqueFd(), note).has_value());
  }
  EXPECT_EQ(answers, 0);
  const auto is_refused = [&](uint32_t port) {
    const int before = answers;
    EXPECT_TRUE(guest_.device->Connect(port, UniqueFd(), note).has_value());
    return answers != before;
  };
  EXPECT_TRUE(is_refused(kPort));
  for (size_t at = 0; at < VsockDevice::kReserved; ++at) {
    EXPECT_FALSE(is_refused(VsockConfig().control_port));
  }
  std::optional<ErrorCode> code;
  const auto last = [&](const Result<void>& outcome) { code = outcome.error().code(); };
  const uint32_t port = VsockConfig().control_port;
  ASSERT_TRUE(guest_.device->Connect(port, std::move(pair.second), last).has_value());
  EXPECT_EQ(code, ErrorCode::kExhausted);
}

TEST_F(VsockTest, HostToGuest_RespectsTheGuestsCredit) {
  guest_.AddBuffers(32);
  Connect();
  opened_ = guest_.TakePackets().at(0).header;
  PacketHeader response = guest_.Header(opened_, vsock::kResponse);
  response.buffer_bytes = 1000;
  ASSERT_TRUE(guest_.Send(response).has_value());
  HostWrites(std::string(5000, 'x'));
  auto packets = guest_.TakePackets();
  ASSERT_EQ(packets.size(), 1U);
  EXPECT_EQ(packets[0].payload.size(), 1000U);
  PacketHeader update = guest_.Header(opened_, vsock::kCreditUpdate);
  update.buffer_bytes = 1000;
  update.forwarded_bytes = 400;
  ASSERT_TRUE(guest_.Send(update).has_value());
  packets = guest_.TakePackets();
  ASSERT_EQ(packets.size(), 1U);
  EXPECT_EQ(packets[0].payload.size(), 400U);
}

TEST_F(VsockTest, HostToGuest_WaitsForBuffersAndKeepsOrder) {
  Open();
  std::string sent;
  for (int at = 0; at < 100000; ++at) {
    sent += std::to_string(at);
  }
  std::string got;
  size_t written = 0;
  for (int round = 0; round < 10000 && got.size() < sent.size(); ++round) {
    const std::string_view rest = std::string_view(sent).substr(written, 50000);
    const ssize_t put = ::write(host_.get(), rest.data(), rest.size());
    written += put > 0 ? static_cast<size_t>(put) : 0;
    ASSERT_TRUE(guest_.Poll());
    for (const auto& packet : guest_.TakePackets()) {
      got += packet.payload;
    }
    PacketHeader update = guest_.Header(opened_, vsock::kCreditUpdate);
    update.forwarded_bytes = static_cast<uint32_t>(got.size());
    ASSERT_TRUE(guest_.Send(update).has_value());
    guest_.AddBuffers(3);
  }
  EXPECT_EQ(got, sent);
}

TEST_F(VsockTest, GuestToHost_CreditIsGivenBackAsTheHostReads) {
  Open();
  const std::string chunk(32 << 10, 'z');
  size_t read = 0;
  for (int round = 0; round < 64; ++round) {
    ASSERT_TRUE(SendData(chunk).has_value());
    read += HostReads().size();
    ASSERT_TRUE(guest_.Poll());
    guest_.AddBuffers(2);
  }
  EXPECT_EQ(read, 64 * chunk.size());
  const auto packets = guest_.TakePackets();
  ASSERT_FALSE(packets.empty());
  EXPECT_EQ(packets.back().header.operation, vsock::kCreditUpdate);
  EXPECT_EQ(packets.back().header.forwarded_bytes, 64 * chunk.size());
}

TEST_F(VsockTest, CreditRequest_IsAnswered) {
  Open();
  ASSERT_TRUE(guest_.Send(guest_.Header(opened_, vsock::kCreditRequest)).has_value());
  EXPECT_EQ(Operations(), Ops{vsock::kCreditUpdate});
}

TEST_F(VsockTest, HostHalfClose_IsPassedOnAfterTheData) {
  Open();
  ASSERT_TRUE(WriteFull(host_.get(), "last words").has_value());
  ::shutdown(host_.get(), SHUT_WR);
  ASSERT_TRUE(guest_.Poll());
  const auto packets = guest_.TakePackets();
  ASSERT_EQ(packets.size(), 2U);
  EXPECT_EQ(packets[0].payload, "last words");
  EXPECT_EQ(packets[1].header.operation, vsock::kShutdown);
  EXPECT_EQ(packets[1].header.flags, vsock::kShutdownSend);
  ASSERT_TRUE(SendData("answer").has_value());
  EXPECT_EQ(HostReads(), "answer");
}

TEST_F(VsockTest, HostClose_IsAShutdownOfBothAndEndsWithTheGuestsReset) {
  Open();
  HostWrites("bye");
  host_ = UniqueFd();
  ASSERT_TRUE(guest_.Poll());
  const auto packets = guest_.TakePackets();
  ASSERT_EQ(packets.size(), 2U);
  EXPECT_EQ(packets[1].header.flags, vsock::kShutdownBoth);
  ASSERT_TRUE(guest_.Send(guest_.Header(opened_, vsock::kReset)).has_value());
  EXPECT_EQ(guest_.device->connection_count(), 0U);
  EXPECT_EQ(guest_.poller.entries.size(), 1U);  // the timer
}

TEST_F(VsockTest, HostClose_AfterHalfCloseIsNoticed) {
  Open();
  ::shutdown(host_.get(), SHUT_WR);
  ASSERT_TRUE(guest_.Poll());
  host_ = UniqueFd();
  ASSERT_TRUE(guest_.Poll());
  const auto packets = guest_.TakePackets();
  ASSERT_EQ(packets.size(), 2U);
  EXPECT_EQ(packets[1].header.flags, vsock::kShutdownBoth);
}

TEST_F(VsockTest, HostClose_IsForcedWhenTheGuestDoesNotReact) {
  Open();
  host_ = UniqueFd();
  ASSERT_TRUE(guest_.Poll());
  guest_.now += VsockDevice::kCloseTimeout;
  ASSERT_TRUE(guest_.device->OnHostReady(VsockDevice::kTimerToken, EPOLLIN).has_value());
  EXPECT_EQ(Operations(), (Ops{vsock::kShutdown, vsock::kReset}));
  EXPECT_EQ(guest_.device->connection_count(), 0U);
}

TEST_F(VsockTest, DataForAClosedHost_IsReset) {
  Open();
  host_ = UniqueFd();
  ASSERT_TRUE(SendData("x").has_value());
  EXPECT_EQ(Operations(), Ops{vsock::kReset});
  EXPECT_EQ(guest_.device->connection_count(), 0U);
}

TEST_F(VsockTest, GuestHalfClose_IsPassedOnAfterTheData) {
  Open();
  ASSERT_TRUE(SendData("last words").has_value());
  ASSERT_TRUE(SendShutdown(vsock::kShutdownSend).has_value());
  EXPECT_EQ(HostReads(), "last words");
  EXPECT_EQ(HostReads(), "EOF");
  HostWrites("answer");
  EXPECT_EQ(guest_.TakePackets().at(0).payload, "answer");
}

TEST_F(VsockTest, GuestHalfClose_OfReceivingStopsTheHost) {
  Open();
  ASSERT_TRUE(SendShutdown(vsock::kShutdownReceive).has_value());
  EXPECT_LT(::send(host_.get(), "x", 1, MSG_NOSIGNAL), 0);
  ASSERT_TRUE(SendData("still").has_value());
  EXPECT_EQ(HostReads(), "still");
}

TEST_F(VsockTest, GuestClose_IsAnsweredByResetAndBacklogStillArrives) {
  Open();
  std::string sent;
  const std::string chunk(16 << 10, 'q');
  // Until the socket is full and something waits in the device.
  while (guest_.poller.entries.back().events != (EPOLLIN | EPOLLOUT)) {
    ASSERT_TRUE(SendData(chunk).has_value());
    sent += chunk;
    guest_.AddBuffers(1);
  }
  guest_.TakePackets();
  ASSERT_TRUE(SendShutdown(vsock::kShutdownBoth).has_value());
  EXPECT_EQ(Operations(), Ops{vsock::kReset});
  std::string got;
  for (std::string text = HostReads(); text != "EOF"; text = HostReads()) {
    got += text;
    ASSERT_TRUE(guest_.Poll());
  }
  EXPECT_EQ(got.size(), sent.size());
  EXPECT_EQ(guest_.device->connection_count(), 0U);
}

TEST_F(VsockTest, GuestReset_ClosesTheHostsEnd) {
  Open();
  ASSERT_TRUE(guest_.Send(guest_.Header(opened_, vsock::kReset)).has_value());
  EXPECT_EQ(HostReads(), "EOF");
  EXPECT_EQ(Operations(), Ops{});
}

TEST_F(VsockTest, Hello_IsAcceptedCollectedAndReset) {
  guest_.AddBuffers(8);
  PacketHeader to_hello;
  to_hello.source_port = 1024;  // as a packet from the device would name it
  to_hello.destination_port = 5555;
  ASSERT_TRUE(guest_.Send(guest_.Header(to_hello, vsock::kRequest)).has_value());
  EXPECT_EQ(Operations(), Ops{vsock::kResponse});
  for (const std::string_view part : {"HELO", "1.0"}) {
    PacketHeader data = guest_.Header(to_hello, vsock::kData);
    data.length = static_cast<uint32_t>(part.size());
    ASSERT_TRUE(guest_.Send(data, part).has_value());
  }
  EXPECT_TRUE(guest_.hellos.empty());
  PacketHeader shutdown = guest_.Header(to_hello, vsock::kShutdown);
  shutdown.flags = vsock::kShutdownBoth;
  ASSERT_TRUE(guest_.Send(shutdown).has_value());
  EXPECT_EQ(guest_.hellos, std::vector<std::string>{"HELO1.0"});
  EXPECT_EQ(Operations(), Ops{vsock::kReset});
  EXPECT_EQ(guest_.device->connection_count(), 0U);
}

TEST_F(VsockTest, Reset_ClosesEverything) {
  Open();
  guest_.device->Reset();
  EXPECT_EQ(HostReads(), "EOF");
  EXPECT_EQ(guest_.device->connection_count(), 0U);
  EXPECT_EQ(guest_.poller.entries.size(), 1U);
  EXPECT_FALSE(*guest_.device->OnQueueReady(0));
}

// Saves the device of `guest` and restores it into another one.
void Transfer(FakeVsockGuest& guest, FakeVsockGuest& into) {
  StateWriter out;
  guest.device->Save(out);
  const std::string saved = std::move(out).Take();
  auto in = StateReader::Parse(saved);
  ASSERT_TRUE(in.has_value());
  ASSERT_TRUE(into.device->Restore(*in).has_value());
  into.BringUp();
}

TEST_F(VsockTest, Restore_ResetsEachStreamThatTheGuestKnew) {
  Open();
  const PacketHeader first = opened_;
  const UniqueFd first_host = std::move(host_);
  outcomes_.clear();
  Open();
  FakeVsockGuest restored;
  Transfer(guest_, restored);
  EXPECT_EQ(restored.device->connection_count(), 0U);
  restored.AddBuffers(4);
  std::vector<uint32_t> reset_ports;
  for (const auto& packet : restored.TakePackets()) {
    EXPECT_EQ(packet.header.operation, vsock::kReset);
    EXPECT_EQ(packet.header.destination_port, kPort);
    reset_ports.push_back(packet.header.source_port);
  }
  std::ranges::sort(reset_ports);
  EXPECT_EQ(reset_ports, (std::vector<uint32_t>{first.source_port, opened_.source_port}));
}

TEST_F(VsockTest, Restore_NewStreamsWorkAtOnceOnPortsOfTheirOwn) {
  Open();
  FakeVsockGuest restored;
  Transfer(guest_, restored);
  auto pair = *MakeSocketPair(SOCK_STREAM);
  int accepted = 0;
  ASSERT_TRUE(restored.device
                  ->Connect(kPort, std::move(pair.second),
                            [&](const Result<void>& outcome) { accepted += outcome ? 1 : 0; })
                  .has_value());
  restored.AddBuffers(4);
  const auto packets = restored.TakePackets();
  ASSERT_EQ(packets.size(), 2U);
  EXPECT_EQ(packets[0].header.operation, vsock::kReset);
  EXPECT_EQ(packets[1].header.operation, vsock::kRequest);
  EXPECT_NE(packets[1].header.source_port, opened_.source_port);
  ASSERT_TRUE(restored.Send(restored.Header(packets[1].header, vsock::kResponse)).has_value());
  EXPECT_EQ(accepted, 1);
}

TEST_F(VsockTest, Restore_PacketsOfOldStreamsAreReset) {
  Open();
  FakeVsockGuest restored;
  Transfer(guest_, restored);
  restored.AddBuffers(4);
  restored.TakePackets();
  ASSERT_TRUE(restored.Send(restored.Header(opened_, vsock::kData), "").has_value());
  const auto packets = restored.TakePackets();
  ASSERT_EQ(packets.size(), 1U);
  EXPECT_EQ(packets[0].header.operation, vsock::kReset);
}

TEST_F(VsockTest, Restore_KeepsResetsThatWaitedForABuffer) {
  PacketHeader nobody;
  nobody.source_port = 7;
  nobody.destination_port = 8;
  ASSERT_TRUE(guest_.Send(guest_.Header(nobody, vsock::kData)).has_value());
  FakeVsockGuest restored;
  Transfer(guest_, restored);
  restored.AddBuffers(1);
  const auto packets = restored.TakePackets();
  ASSERT_EQ(packets.size(), 1U);
  EXPECT_EQ(packets[0].header.source_port, 7U);
}

TEST_F(VsockTest, ManyStreams_TakeTurns) {
  guest_.AddBuffers(8);
  std::vector<UniqueFd> hosts;
  for (int at = 0; at < 3; ++at) {
    Connect();
    hosts.push_back(std::move(host_));
    ASSERT_TRUE(guest_.Send(guest_.Header(guest_.TakePackets().at(0).header, vsock::kResponse))
                    .has_value());
  }
  const std::string much(60000, 'm');
  for (const UniqueFd& host : hosts) {
    ASSERT_TRUE(WriteFull(host.get(), much).has_value());
  }
  ASSERT_TRUE(guest_.Poll());
  guest_.TakePackets();
  guest_.AddBuffers(3);
  std::vector<uint32_t> ports;
  for (const auto& packet : guest_.TakePackets()) {
    ports.push_back(packet.header.source_port);
  }
  ASSERT_EQ(ports.size(), 3U);
  EXPECT_NE(ports[0], ports[1]);
  EXPECT_NE(ports[1], ports[2]);
  EXPECT_NE(ports[0], ports[2]);
}

}  // namespace
}  // namespace space
