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

TEST(VmmControl, Restore_SurvivesTheWire) {
  RestoreRequest restore;
  restore.memory_layers = 3;
  restore.disks = {{"root", {LayerFormat::kRaw, LayerFormat::kSparse}, false, 1 << 20}};
  restore.serial_limit_bytes = 4096;
  restore.has_working_set = true;
  const auto packet = DecodeVmmPacket(Encode({7, restore}));
  ASSERT_TRUE(packet.has_value());
  const auto& got = std::get<RestoreRequest>(packet->message);
  EXPECT_EQ(got.memory_layers, 3U);
  ASSERT_EQ(got.disks.size(), 1U);
  EXPECT_EQ(got.disks[0].layers, restore.disks[0].layers);
  EXPECT_EQ(got.serial_limit_bytes, 4096U);
  EXPECT_TRUE(got.has_working_set);
}

TEST(VmmControl, Snapshot_SurvivesTheWire) {
  const auto asked = DecodeVmmPacket(Encode({8, SnapshotRequest{2, true, false, 99, true}}));
  ASSERT_TRUE(asked.has_value());
  const auto& request = std::get<SnapshotRequest>(asked->message);
  EXPECT_EQ(request.kept_memory_layers, 2U);
  EXPECT_TRUE(request.is_durable);
  EXPECT_FALSE(request.stays_paused);
  EXPECT_EQ(request.max_bytes, 99U);
  EXPECT_TRUE(request.child_waits);
  const SnapshotReply reply{.error = "disk full",
                            .pause_us = 1,
                            .park_us = 2,
                            .scan_us = 3,
                            .mark_us = 4,
                            .fork_us = 5,
                            .resume_us = 6,
                            .write_us = 7,
                            .dirty_pages = 8,
                            .written_pages = 9,
                            .mappings = 10};
  const auto answered = DecodeVmmPacket(Encode({8, reply}));
  ASSERT_TRUE(answered.has_value());
  const auto& got = std::get<SnapshotReply>(answered->message);
  EXPECT_EQ(got.error, "disk full");
  EXPECT_EQ(got.pause_us, 1U);
  EXPECT_EQ(got.write_us, 7U);
  EXPECT_EQ(got.written_pages, 9U);
  EXPECT_EQ(got.mappings, 10U);
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
