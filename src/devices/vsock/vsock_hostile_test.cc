// Guests that break the rules.
#include <sys/epoll.h>

#include <gtest/gtest.h>

#include "devices/vsock/vsock_fixture.h"

namespace space {
namespace {

TEST_F(VsockTest, HostToGuest_ForgedCreditSendsNothing) {
  Open();
  PacketHeader update = guest_.Header(opened_, vsock::kCreditUpdate);
  update.buffer_bytes = 4096;
  update.forwarded_bytes = 1U << 31;  // more than was ever sent
  ASSERT_TRUE(guest_.Send(update).has_value());
  HostWrites("x");
  EXPECT_EQ(Operations(), Ops{});
}

TEST_F(VsockTest, GuestToHost_WithoutCreditIsReset) {
  Open();
  // A socket that takes no more: everything goes to the backlog.
  const std::string chunk(64 << 10, 'z');
  std::vector<uint16_t> operations;
  for (int round = 0; round < 20 && guest_.device->connection_count() == 1; ++round) {
    ASSERT_TRUE(SendData(chunk).has_value());
    for (const uint16_t operation : Operations()) {
      operations.push_back(operation);
    }
    if (!operations.empty() && operations.back() == vsock::kReset) {
      break;
    }
    guest_.AddBuffers(1);
  }
  ASSERT_FALSE(operations.empty());
  EXPECT_EQ(operations.back(), vsock::kReset);
}

TEST_F(VsockTest, Hello_TooLongIsReset) {
  guest_.AddBuffers(8);
  PacketHeader to_hello;
  to_hello.source_port = 1024;
  to_hello.destination_port = 5555;
  ASSERT_TRUE(guest_.Send(guest_.Header(to_hello, vsock::kRequest)).has_value());
  PacketHeader data = guest_.Header(to_hello, vsock::kData);
  data.length = 600;
  ASSERT_TRUE(guest_.Send(data, std::string(600, 'x')).has_value());
  ASSERT_TRUE(guest_.Send(data, std::string(600, 'x')).has_value());
  EXPECT_EQ(Operations(), (Ops{vsock::kResponse, vsock::kReset}));
  EXPECT_TRUE(guest_.hellos.empty());
}

TEST_F(VsockTest, Hello_FloodReplacesTheOldest) {
  guest_.AddBuffers(64);
  for (uint32_t port = 1; port <= 10; ++port) {
    PacketHeader to_hello;
    to_hello.source_port = 1024;
    to_hello.destination_port = port;
    ASSERT_TRUE(guest_.Send(guest_.Header(to_hello, vsock::kRequest)).has_value());
  }
  EXPECT_EQ(guest_.device->connection_count(), VsockDevice::kMaxHellos);
}

TEST_F(VsockTest, GuestRequest_ToAnyOtherPortIsReset) {
  guest_.AddBuffers(8);
  for (const uint32_t port : {0U, 22U, 1023U, 1025U, kPort, ~0U}) {
    PacketHeader to_port;
    to_port.source_port = port;
    to_port.destination_port = 5555;
    ASSERT_TRUE(guest_.Send(guest_.Header(to_port, vsock::kRequest)).has_value());
    EXPECT_EQ(Operations(), Ops{vsock::kReset}) << port;
  }
  EXPECT_EQ(guest_.device->connection_count(), 0U);
}

TEST_F(VsockTest, UnknownStreams_AreResetButAResetNever) {
  guest_.AddBuffers(16);
  PacketHeader nobody;
  nobody.source_port = 7;
  nobody.destination_port = 8;
  for (const uint16_t operation : std::initializer_list<uint16_t>{0, 2, 4, 5, 6, 7, 8, 0xffff}) {
    ASSERT_TRUE(guest_.Send(guest_.Header(nobody, operation)).has_value());
    EXPECT_EQ(Operations(), Ops{vsock::kReset}) << operation;
  }
  ASSERT_TRUE(guest_.Send(guest_.Header(nobody, vsock::kReset)).has_value());
  EXPECT_EQ(Operations(), Ops{});
}

TEST_F(VsockTest, UnknownOperations_ResetTheStream) {
  for (const uint16_t operation : std::initializer_list<uint16_t>{0, 1, 2, 8, 0xffff}) {
    outcomes_.clear();
    Open();
    ASSERT_TRUE(guest_.Send(guest_.Header(opened_, operation)).has_value());
    EXPECT_EQ(Operations(), Ops{vsock::kReset}) << operation;
    EXPECT_EQ(guest_.device->connection_count(), 0U);
  }
}

TEST_F(VsockTest, DataBeforeTheAnswer_ResetsTheStream) {
  guest_.AddBuffers(8);
  Connect();
  opened_ = guest_.TakePackets().at(0).header;
  ASSERT_TRUE(SendData("early").has_value());
  EXPECT_EQ(Operations(), Ops{vsock::kReset});
  EXPECT_EQ(outcomes_.at(0).error().code(), ErrorCode::kUnavailable);
}

TEST_F(VsockTest, DataAfterShutdown_ResetsTheStream) {
  Open();
  ASSERT_TRUE(SendShutdown(vsock::kShutdownSend).has_value());
  ASSERT_TRUE(SendData("late").has_value());
  EXPECT_EQ(Operations(), Ops{vsock::kReset});
}

TEST_F(VsockTest, LengthBeyondThePacket_ResetsTheStream) {
  for (const uint32_t length : {11U, 65537U, 0x7fffffffU, ~0U}) {
    outcomes_.clear();
    Open();
    PacketHeader header = guest_.Header(opened_, vsock::kData);
    header.length = length;
    ASSERT_TRUE(guest_.Send(header, "0123456789").has_value());
    EXPECT_EQ(Operations(), Ops{vsock::kReset}) << length;
    EXPECT_EQ(HostReads(), "EOF");
  }
  EXPECT_EQ(guest_.device->dropped_packets(), 4U);
}

TEST_F(VsockTest, OtherTypes_ResetTheStream) {
  Open();
  PacketHeader header = guest_.Header(opened_, vsock::kData);
  header.type = 2;
  ASSERT_TRUE(guest_.Send(header).has_value());
  EXPECT_EQ(Operations(), Ops{vsock::kReset});
}

TEST_F(VsockTest, WrongAddresses_AreDropped) {
  Open();
  PacketHeader header = guest_.Header(opened_, vsock::kReset);
  header.source_cid = 4;
  ASSERT_TRUE(guest_.Send(header).has_value());
  header.source_cid = 3;
  header.destination_cid = 1;
  ASSERT_TRUE(guest_.Send(header).has_value());
  EXPECT_EQ(guest_.device->dropped_packets(), 2U);
  EXPECT_EQ(guest_.device->connection_count(), 1U);
  EXPECT_EQ(Operations(), Ops{});
}

TEST_F(VsockTest, FloodWithoutBuffers_StopsTheTransmitQueueUntilThereAreSome) {
  PacketHeader nobody;
  nobody.source_port = 7;
  int sent = 0;
  for (; sent < 1000; ++sent) {
    nobody.destination_port = static_cast<uint32_t>(sent);
    ASSERT_TRUE(guest_.Send(guest_.Header(nobody, vsock::kRequest)).has_value());
    if (guest_.transmit.used_index() != sent + 1) {
      break;
    }
  }
  EXPECT_EQ(sent, VsockDevice::kMaxResets);
  guest_.AddBuffers(8);
  EXPECT_EQ(Operations().size(), 8U);
  while (*guest_.device->OnQueueReady(0)) {
  }
  EXPECT_EQ(guest_.transmit.used_index(), sent + 1);
}

TEST_F(VsockTest, OpenAndCloseFlood_LeavesNothingBehind) {
  for (uint32_t round = 0; round < 2000; ++round) {
    PacketHeader to_hello;
    to_hello.source_port = 1024;
    to_hello.destination_port = round;
    ASSERT_TRUE(guest_.Send(guest_.Header(to_hello, vsock::kRequest)).has_value());
    ASSERT_TRUE(guest_.Send(guest_.Header(to_hello, vsock::kReset)).has_value());
  }
  EXPECT_EQ(guest_.device->connection_count(), 0U);
}

TEST_F(VsockTest, ShortOrWritablePackets_AreGuestFaults) {
  guest_.transmit.Add({{FakeVsockGuest::kTransmitArea, 43, false}});
  EXPECT_EQ(guest_.device->OnQueueReady(1).error().code(), ErrorCode::kGuestFault);
  FakeVsockGuest other;
  other.BringUp();
  other.transmit.Add(
      {{FakeVsockGuest::kTransmitArea, 44, false}, {FakeVsockGuest::kTransmitArea, 44, true}});
  EXPECT_FALSE(other.device->OnQueueReady(1).has_value());
}

TEST_F(VsockTest, TinyReceiveBuffers_AreGuestFaults) {
  Connect();
  guest_.receive.Add({{FakeVsockGuest::kReceiveArea, 44, true}});
  EXPECT_EQ(guest_.device->OnQueueReady(0).error().code(), ErrorCode::kGuestFault);
}

TEST_F(VsockTest, BrokenReceiveRing_IsReportedByConnectToo) {
  guest_.receive.SetAvailableIndex(1000);
  auto pair = *MakeSocketPair(SOCK_STREAM);
  int answers = 0;
  const auto note = [&](const Result<void>&) { ++answers; };
  EXPECT_FALSE(guest_.device->Connect(kPort, std::move(pair.second), note).has_value());
  guest_.device->Reset();
  EXPECT_EQ(answers, 1);
}

TEST_F(VsockTest, LateEvents_ForStreamsThatAreGoneAreIgnored) {
  Open();
  const uint64_t token = guest_.poller.entries.back().token;
  guest_.device->Reset();
  EXPECT_TRUE(guest_.device->OnHostReady(token, EPOLLIN).has_value());
  EXPECT_TRUE(guest_.device->OnHostReady(~0ULL, EPOLLOUT).has_value());
}

}  // namespace
}  // namespace space
