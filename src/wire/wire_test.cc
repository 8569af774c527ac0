#include <gtest/gtest.h>

#include "wire/hello.h"
#include "wire/vmm_control.h"

namespace space::wire {
namespace {

TEST(VmmControl, Start_SurvivesTheWire) {
  StartRequest start;
  start.vcpus = 4;
  start.memory_bytes = 1ULL << 30;
  start.command_line = "console=ttyS0";
  start.disks.push_back({"root", {LayerFormat::kRaw, LayerFormat::kSparse}, false, 1ULL << 33});
  const auto packet = DecodeVmmPacket(Encode({7, start}));
  ASSERT_TRUE(packet.has_value());
  EXPECT_EQ(packet->id, 7U);
  const auto& got = std::get<StartRequest>(packet->message);
  EXPECT_EQ(got.vcpus, 4U);
  EXPECT_EQ(got.disks.at(0).layers.size(), 2U);
  EXPECT_EQ(got.disks.at(0).size_bytes, 1ULL << 33);
}

TEST(VmmControl, Decode_RefusesEveryTruncation) {
  StartRequest start;
  start.disks.push_back({"root", {LayerFormat::kRaw}, true, 4096});
  const std::string whole = Encode({1, start});
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(DecodeVmmPacket(whole.substr(0, size)).has_value()) << size;
  }
  EXPECT_FALSE(DecodeVmmPacket(whole + "x").has_value());
}

TEST(VmmControl, Decode_RefusesUnknownVersionAndType) {
  std::string bytes = Encode({1, StatusRequest{}});
  bytes[0] = 9;
  EXPECT_FALSE(DecodeVmmPacket(bytes).has_value());
  bytes = Encode({1, StatusRequest{}});
  bytes[2] = 99;
  EXPECT_FALSE(DecodeVmmPacket(bytes).has_value());
}

TEST(VmmControl, ExitRecord_SurvivesAndRefusesHalves) {
  const Exit exit{ExitReason::kGuestPanic, "Attempted to kill init!"};
  const auto got = DecodeExitRecord(EncodeExitRecord(exit));
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->reason, ExitReason::kGuestPanic);
  EXPECT_EQ(got->detail, exit.detail);
  EXPECT_FALSE(DecodeExitRecord("guest_pa").has_value());
  EXPECT_FALSE(DecodeExitRecord("").has_value());
}

TEST(Hello, Decode_RefusesForeignBytes) {
  Hello hello;
  hello.agent_version = "0.1.0";
  hello.boot_id = "b";
  const std::string bytes = Encode(hello);
  EXPECT_EQ(DecodeHello(bytes)->boot_id, "b");
  EXPECT_TRUE(DecodeHello(bytes + "later fields").has_value());
  EXPECT_FALSE(DecodeHello("GET / HTTP/1.1").has_value());
  EXPECT_FALSE(DecodeHello(bytes.substr(0, bytes.size() - 1)).has_value());
}

}  // namespace
}  // namespace space::wire
