// A fake guest with one stream to a fake daemon, for the tests of VsockDevice.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "devices/vsock/fake_guest.h"

namespace space {

using vsock::PacketHeader;

constexpr uint32_t kPort = 49983;

class VsockTest : public testing::Test {
 protected:
  VsockTest() { guest_.BringUp(); }

  // Opens a stream up to the guest's answer; `opened_` is the REQUEST, `host_` the daemon's end.
  void Connect() {
    auto pair = *MakeSocketPair(SOCK_STREAM);
    host_ = std::move(pair.first);
    ::fcntl(host_.get(), F_SETFL, O_NONBLOCK);
    ASSERT_TRUE(guest_.device
                    ->Connect(kPort, std::move(pair.second),
                              [this](Result<void> outcome) { outcomes_.push_back(outcome); })
                    .has_value());
  }
  void Open() {
    guest_.AddBuffers(32);
    Connect();
    opened_ = guest_.TakePackets().at(0).header;
    ASSERT_TRUE(guest_.Send(guest_.Header(opened_, vsock::kResponse)).has_value());
    ASSERT_EQ(outcomes_.size(), 1U);
    ASSERT_TRUE(outcomes_[0].has_value());
  }
  Result<bool> SendData(std::string_view payload) {
    PacketHeader header = guest_.Header(opened_, vsock::kData);
    header.length = static_cast<uint32_t>(payload.size());
    header.forwarded_bytes = taken_;
    return guest_.Send(header, payload);
  }
  Result<bool> SendShutdown(uint32_t flags) {
    PacketHeader header = guest_.Header(opened_, vsock::kShutdown);
    header.flags = flags;
    return guest_.Send(header);
  }
  // What the daemon finds in its socket; "EOF" when that is at its end, "" when there is nothing.
  std::string HostReads() {
    std::string text(1 << 20, '\0');
    const ssize_t got = ::read(host_.get(), text.data(), text.size());
    return got == 0 ? "EOF" : text.substr(0, got < 0 ? 0 : static_cast<size_t>(got));
  }
  void HostWrites(std::string_view text) {
    ASSERT_TRUE(WriteFull(host_.get(), text).has_value());
    ASSERT_TRUE(guest_.Poll());
  }
  std::vector<uint16_t> Operations() {
    std::vector<uint16_t> operations;
    for (const auto& packet : guest_.TakePackets()) {
      operations.push_back(packet.header.operation);
    }
    return operations;
  }

  using Ops = std::vector<uint16_t>;
  FakeVsockGuest guest_;
  UniqueFd host_;
  std::vector<Result<void>> outcomes_;
  PacketHeader opened_;
  uint32_t taken_ = 0;  // bytes that the guest has read
};

}  // namespace space
