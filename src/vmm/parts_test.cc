// The parts of the monitor that need no KVM.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <thread>

#include <gtest/gtest.h>

#include "base/units.h"
#include "boot/acpi.h"
#include "vmm/bus.h"
#include "vmm/cpuid.h"
#include "vmm/event_loop.h"
#include "vmm/power_ports.h"
#include "vmm/start_config.h"

namespace space {
namespace {

// ---- start requests

struct BadStart {
  const char* name;
  std::function<void(wire::StartRequest&)> change;
  const char* expected;
};

wire::StartRequest GoodStart() {
  wire::StartRequest start;
  start.vcpus = 2;
  start.memory_bytes = MiB(128);
  start.disks.push_back(
      {"root", {wire::LayerFormat::kRaw, wire::LayerFormat::kSparse}, false, MiB(8)});
  return start;
}

std::vector<UniqueFd> Files(size_t count) {
  std::vector<UniqueFd> fds;
  for (size_t at = 0; at < count; ++at) {
    Result<UniqueFd> fd = CreateMemfd("file");
    EXPECT_TRUE(fd);
    fds.push_back(*std::move(fd));
  }
  return fds;
}

size_t FilesFor(const wire::StartRequest& start) {
  size_t count = 4;
  for (const wire::DiskSpec& disk : start.disks) {
    count += disk.layers.size();
  }
  return count;
}

TEST(StartConfigTest, CheckStart_GivesEachDescriptorItsPlace) {
  std::vector<UniqueFd> fds = Files(6);
  const int top = fds[3].get();
  const int record = fds[5].get();
  const Result<MachineConfig> config = CheckStart(GoodStart(), std::move(fds), GiB(1));
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->disks.at(0).layers.at(1).fd.get(), top);
  EXPECT_TRUE(config->disks.at(0).layers.at(1).is_writable);
  EXPECT_FALSE(config->disks.at(0).layers.at(0).is_writable);
  EXPECT_EQ(config->exit_record.get(), record);
}

class BadStartTest : public testing::TestWithParam<BadStart> {};

TEST_P(BadStartTest, CheckStart_NamesTheField) {
  wire::StartRequest start = GoodStart();
  GetParam().change(start);
  const Result<MachineConfig> config = CheckStart(start, Files(FilesFor(start)), GiB(1));
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(config.error().message().find(GetParam().expected), std::string::npos)
      << config.error().message();
}

using Start = wire::StartRequest;
INSTANTIATE_TEST_SUITE_P(
    Fields, BadStartTest,
    testing::Values(
        BadStart{"NoCpu", [](Start& s) { s.vcpus = 0; }, "vcpus is 0"},
        BadStart{"ManyCpus", [](Start& s) { s.vcpus = 33; }, "vcpus is 33"},
        BadStart{"NoMemory", [](Start& s) { s.memory_bytes = 0; }, "memory_bytes is 0"},
        BadStart{"LittleMemory", [](Start& s) { s.memory_bytes = MiB(62); }, "64 MiB"},
        BadStart{"OddMemory", [](Start& s) { s.memory_bytes = MiB(65); }, "multiple of 2 MiB"},
        BadStart{"MuchMemory", [](Start& s) { s.memory_bytes = GiB(2); }, "more than the host"},
        BadStart{"HugeMemory", [](Start& s) { s.memory_bytes = ~0ull << 21; },
                 "more than the host"},
        BadStart{"LongLine", [](Start& s) { s.command_line.assign(2049, 'a'); }, "command_line"},
        BadStart{"ZeroInLine", [](Start& s) { s.command_line.assign(1, '\0'); }, "command_line"},
        BadStart{"ManyDisks", [](Start& s) { s.disks.resize(9, s.disks[0]); }, "disks: 9"},
        BadStart{"DiskName", [](Start& s) { s.disks[0].id = "Root!"; }, "disks: id 'Root!'"},
        BadStart{"DiskTwice", [](Start& s) { s.disks.push_back(s.disks[0]); }, "twice"},
        BadStart{"NoLayers", [](Start& s) { s.disks[0].layers.clear(); }, "disk root: layers"},
        BadStart{"NoSize", [](Start& s) { s.disks[0].size_bytes = 0; }, "size_bytes"},
        BadStart{"OddSize", [](Start& s) { s.disks[0].size_bytes = 4097; }, "size_bytes"},
        BadStart{"RawTop", [](Start& s) { s.disks[0].layers.pop_back(); }, "raw"},
        BadStart{"RawAbove", [](Start& s) { s.disks[0].layers[1] = wire::LayerFormat::kRaw; },
                 "raw"}),
    [](const auto& param) { return param.param.name; });

TEST(StartConfigTest, CheckStart_CountsDescriptors) {
  for (const size_t count : {0, 5, 7}) {
    const Result<MachineConfig> config = CheckStart(GoodStart(), Files(count), GiB(1));
    ASSERT_FALSE(config);
    EXPECT_NE(config.error().message().find("6 are needed"), std::string::npos);
  }
}

// ---- bus

class RecordingDevice final : public BusDevice {
 public:
  void Read(uint64_t offset, std::span<std::byte> into) override {
    std::ranges::fill(into, static_cast<std::byte>(offset));
  }
  void Write(uint64_t offset, std::span<const std::byte> from) override {
    last_offset = offset;
    last_size = from.size();
  }
  uint64_t last_offset = ~0ull;
  size_t last_size = 0;
};

TEST(BusTest, Read_GivesAllOnesAndCountsWhereNobodyAnswers) {
  Bus bus;
  RecordingDevice device;
  bus.Add(0x1000, 0x10, device);
  std::array<std::byte, 4> data{};
  for (const uint64_t at : {0x0ull, 0xfffull, 0x1010ull, 0x100eull, ~0ull}) {
    data.fill(std::byte{0});
    bus.Read(at, data);
    EXPECT_EQ(data[0], std::byte{0xff}) << at;
    EXPECT_EQ(data[3], std::byte{0xff}) << at;
  }
  bus.Write(0x100e, data);
  EXPECT_EQ(bus.unclaimed(), 6u);
  EXPECT_EQ(device.last_size, 0u);
}

TEST(BusTest, Access_ReachesTheDeviceByItsOffset) {
  Bus bus;
  RecordingDevice low, high;
  bus.Add(0x2000, 0x10, high);
  bus.Add(0x1000, 0x1000, low);
  std::array<std::byte, 4> data{};
  bus.Read(0x200c, data);
  EXPECT_EQ(data[0], std::byte{0x0c});
  bus.Write(0x1ffc, data);
  EXPECT_EQ(low.last_offset, 0xffcu);
  EXPECT_EQ(bus.unclaimed(), 0u);
}

// ---- power

TEST(PowerPortsTest, Write_EndsOnlyOnTheRightValues) {
  int reports = 0;
  ExitBox exit([&] { ++reports; });
  Bus ports;
  AcpiPowerPorts acpi(exit);
  KeyboardResetPort keyboard(exit);
  acpi.AddTo(ports);
  keyboard.AddTo(ports);
  const auto write = [&](uint64_t port, uint8_t value) {
    const std::byte byte{value};
    ports.Write(port, std::span(&byte, 1));
  };
  write(boot::kSleepControlPort, 0x20 | 3 << 2);  // S3: not ours
  write(boot::kSleepControlPort, 5 << 2);         // no go
  write(boot::kSleepStatusPort, 0x80);
  write(boot::kResetPort, 0);
  write(0x64, 0xae);
  EXPECT_EQ(reports, 0);
  write(boot::kSleepControlPort, 0x20 | 5 << 2);
  EXPECT_EQ(exit.Get()->reason, wire::ExitReason::kGuestShutdown);
  write(boot::kResetPort, boot::kResetValue);
  write(0x64, 0xfe);
  EXPECT_EQ(reports, 1);
  EXPECT_EQ(exit.Get()->reason, wire::ExitReason::kGuestShutdown);
}

// ---- cpuid

const kvm_cpuid_entry2* FindLeaf(const kvm::CpuidTable& table, uint32_t function, uint32_t index) {
  const auto found = std::ranges::find_if(table, [&](const kvm_cpuid_entry2& leaf) {
    return leaf.function == function && leaf.index == index;
  });
  return found == table.end() ? nullptr : &*found;
}

kvm_cpuid_entry2 Leaf(uint32_t function, uint32_t eax, uint32_t ebx, uint32_t ecx, uint32_t edx) {
  kvm_cpuid_entry2 leaf = {};
  leaf.function = function;
  leaf.eax = eax;
  leaf.ebx = ebx;
  leaf.ecx = ecx;
  leaf.edx = edx;
  return leaf;
}

TEST(CpuidTest, CpuidFor_GivesEachVcpuItsPlaceAndHidesWhatWeLack) {
  const kvm::CpuidTable host = {
      Leaf(0, 0x20, 0, 0, 0),
      Leaf(1, 0, 0, ~0u, 0),
      Leaf(4, 0x3c000121 | 3 << 14, 0, 0, 0),
      Leaf(0xb, 9, 9, 9, 9),
      Leaf(0x1f, 9, 9, 9, 9),
      Leaf(0x40000000, 0x40000001, 0x4b4d564b, 0x564b4d56, 0x4d),
      Leaf(0x40000001, ~0u, 0, 0, 0),
      Leaf(0x80000001, 0, 0, ~0u, 0),
      Leaf(0x8000001e, 99, 0x1ff, 7, 0),
  };
  const kvm::CpuidTable table = CpuidFor(host, 19, 20);
  EXPECT_EQ(FindLeaf(table, 1, 0)->ebx >> 24, 19u);
  EXPECT_EQ(FindLeaf(table, 1, 0)->ebx >> 16 & 0xff, 32u);
  EXPECT_EQ(FindLeaf(table, 1, 0)->ecx & 1u << 5, 0u);
  EXPECT_NE(FindLeaf(table, 1, 0)->ecx & 1u << 24, 0u);
  EXPECT_EQ(FindLeaf(table, 4, 0)->eax >> 26, 31u);
  EXPECT_EQ(FindLeaf(table, 4, 0)->eax >> 14 & 0xfff, 0u);
  EXPECT_EQ(FindLeaf(table, 0xb, 1)->eax, 5u);
  EXPECT_EQ(FindLeaf(table, 0xb, 1)->ebx, 20u);
  EXPECT_EQ(FindLeaf(table, 0xb, 2)->edx, 19u);
  EXPECT_EQ(FindLeaf(table, 0x1f, 0), nullptr);
  EXPECT_EQ(FindLeaf(table, 0, 0)->eax, 0x1eu);
  EXPECT_EQ(FindLeaf(table, 0x40000001, 0)->eax & (1u << 4 | 1u << 10 | 1u << 14), 0u);
  EXPECT_EQ(FindLeaf(table, 0x80000001, 0)->ecx & 1u << 2, 0u);
  EXPECT_EQ(FindLeaf(table, 0x8000001e, 0)->eax, 19u);
}

TEST(CpuidTest, CpuidFor_OneVcpuHasNoSiblings) {
  const kvm::CpuidTable table = CpuidFor({Leaf(0, 0xd, 0, 0, 0), Leaf(1, 0, 0, 0, ~0u)}, 0, 1);
  EXPECT_EQ(FindLeaf(table, 1, 0)->edx & 1u << 28, 0u);
  EXPECT_EQ(FindLeaf(table, 1, 0)->ebx >> 16 & 0xff, 1u);
  EXPECT_EQ(FindLeaf(table, 0xb, 1)->eax, 0u);
}

// ---- event loop

class CountingSink final : public EventSink {
 public:
  explicit CountingSink(std::function<void(uint64_t, uint32_t)> call) : call_(std::move(call)) {}
  void OnEvents(uint64_t token, uint32_t events) override { call_(token, events); }

 private:
  std::function<void(uint64_t, uint32_t)> call_;
};

TEST(EventLoopTest, Run_DeliversTheTokenOfTheLatestWatch) {
  const auto loop = *EventLoop::Create();
  const UniqueFd event(::eventfd(1, EFD_NONBLOCK));
  uint64_t seen = 0;
  CountingSink sink([&](uint64_t token, uint32_t) {
    seen = token;
    loop->Stop();
  });
  ASSERT_TRUE(loop->Watch(event.get(), EPOLLIN, sink, 1));
  ASSERT_TRUE(loop->Watch(event.get(), EPOLLIN, sink, 2));
  ASSERT_TRUE(loop->Run());
  EXPECT_EQ(seen, 2u);
}

TEST(EventLoopTest, Unwatch_SilencesEvenAnEventAlreadyFetched) {
  const auto loop = *EventLoop::Create();
  const UniqueFd first(::eventfd(1, EFD_NONBLOCK));
  const UniqueFd second(::eventfd(1, EFD_NONBLOCK));
  int calls = 0;
  CountingSink sink([&](uint64_t token, uint32_t) {
    ++calls;
    loop->Unwatch(token == 1 ? second.get() : first.get());  // the other one is in the same batch
    loop->Stop();
  });
  ASSERT_TRUE(loop->Watch(first.get(), EPOLLIN, sink, 1));
  ASSERT_TRUE(loop->Watch(second.get(), EPOLLIN, sink, 2));
  ASSERT_TRUE(loop->Run());
  EXPECT_EQ(calls, 1);
}

TEST(EventLoopTest, Post_RunsInOrderFromAnyThread) {
  const auto loop = *EventLoop::Create();
  std::vector<int> order;
  std::thread poster([&] {
    for (int at = 0; at < 100; ++at) {
      loop->Post([&order, at] { order.push_back(at); });
    }
    loop->Post([&] { loop->Stop(); });
  });
  ASSERT_TRUE(loop->Run());
  poster.join();
  EXPECT_EQ(order.size(), 100u);
  EXPECT_TRUE(std::ranges::is_sorted(order));
}

}  // namespace
}  // namespace space
