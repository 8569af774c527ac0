// For tests: the whole monitor but its main on a thread of its own, driven over its control socket
// with guests of a few instructions. They run on any /dev/kvm, also one that could not run Linux.
// Without one: skipped, and said so.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/seqpacket.h"
#include "base/units.h"
#include "boot/tiny_kernel.h"
#include "layer/sparse_layer.h"
#include "vmm/service.h"
#include "wire/vmm_control.h"

namespace space {

class VmmUnderTest {
 public:
  // Once. Without End the process of the test would not end.
  void Begin() {
    std::string pattern = testing::TempDir() + "vmm.XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    Result<UniqueFd> listener = ListenSeqpacket(socket_path());
    ASSERT_TRUE(listener) << listener.error().message();
    Result<UniqueFd> kvm = OpenReadWrite("/dev/kvm");
    ASSERT_TRUE(kvm);
    service_ = std::thread([this, fd = *std::move(listener), device = *std::move(kvm)]() mutable {
      ran_ = RunService(std::move(fd), std::move(device), *PageScan::Open());
    });
    client_ = Connect();
  }
  void End() {
    if (service_.joinable()) {
      if (!has_ended_) {
        Send(99, wire::KillRequest{});
      }
      service_.join();
      EXPECT_TRUE(ran_) << ran_.error().message();
    }
    if (!directory_.empty()) {
      std::filesystem::remove_all(directory_);
    }
  }

  std::string socket_path() const { return directory_ + "/control"; }
  UniqueFd Connect() const {
    Result<UniqueFd> fd = ConnectSeqpacket(socket_path());
    EXPECT_TRUE(fd) << fd.error().message();
    return fd ? *std::move(fd) : UniqueFd();
  }
  void Send(uint32_t id, wire::VmmMessage message, const std::vector<int>& fds = {}) {
    EXPECT_TRUE(
        SendPacket(client_.get(), wire::Encode(wire::VmmPacket{id, std::move(message)}), fds));
  }
  // The next packet; the test fails when none comes in 20 s.
  std::optional<wire::VmmPacket> Next() {
    pollfd poll_fd = {.fd = client_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&poll_fd, 1, 20'000) != 1) {
      ADD_FAILURE() << "nothing came";
      return std::nullopt;
    }
    Result<Packet> packet = ReceivePacket(client_.get());
    if (!packet || packet->bytes.empty()) {
      return std::nullopt;
    }
    Result<wire::VmmPacket> decoded = wire::DecodeVmmPacket(packet->bytes);
    EXPECT_TRUE(decoded);
    return decoded ? std::optional(*std::move(decoded)) : std::nullopt;
  }
  wire::Reply NextReply() {
    const std::optional<wire::VmmPacket> packet = Next();
    const auto* reply = packet ? std::get_if<wire::Reply>(&packet->message) : nullptr;
    EXPECT_NE(reply, nullptr);
    return reply != nullptr ? *reply : wire::Reply{false, ErrorCode::kInternal, "no reply"};
  }
  wire::Exit NextExit() {
    const std::optional<wire::VmmPacket> packet = Next();
    const auto* event = packet ? std::get_if<wire::ExitEvent>(&packet->message) : nullptr;
    EXPECT_NE(event, nullptr);
    has_ended_ = event != nullptr;
    return event != nullptr ? event->exit : wire::Exit{};
  }

  static UniqueFd FileOf(std::string_view bytes) {
    Result<UniqueFd> fd = CreateMemfd("file");
    EXPECT_TRUE(fd && WriteFull(fd->get(), bytes));
    return *std::move(fd);
  }
  wire::Reply Start(std::string_view kernel, wire::StartRequest request = {}) {
    if (request.memory_bytes == 0) {
      request.memory_bytes = MiB(64);
    }
    std::vector<UniqueFd> fds;
    fds.push_back(FileOf(kernel));
    fds.push_back(FileOf("initramfs"));
    for (size_t disk = 0; disk < request.disks.size(); ++disk) {
      fds.push_back(FileOf(std::string(MiB(1), 'd')));
      fds.push_back(FileOf(""));
      EXPECT_TRUE(CreateSparseLayer(fds.back().get(), MiB(1)));
    }
    fds.push_back(FileOf(""));
    fds.push_back(FileOf(""));
    record_ = *fds.back().Duplicate();
    std::vector<int> raw;
    for (const UniqueFd& fd : fds) {
      raw.push_back(fd.get());
    }
    Send(1, std::move(request), raw);
    return NextReply();
  }
  wire::Reply StartCode(std::string_view code, wire::StartRequest request = {}) {
    return Start(boot::TinyKernel(code).bytes(), std::move(request));
  }
  std::string Record() const {
    std::string text(4096, '\0');
    const ssize_t got = ::pread(record_.get(), text.data(), text.size(), 0);
    text.resize(got < 0 ? 0 : static_cast<size_t>(got));
    return text;
  }

  std::string directory_;
  std::thread service_;
  Result<void> ran_;
  UniqueFd client_;
  UniqueFd record_;
  bool has_ended_ = false;
};

class ServiceTest : public testing::Test, protected VmmUnderTest {
 protected:
  static void SetUpTestSuite() { BlockSignals(); }
  void SetUp() override {
    if (::access("/dev/kvm", R_OK | W_OK) != 0) {
      GTEST_SKIP() << "no usable /dev/kvm here: guest not run";
    }
    Begin();
  }
  void TearDown() override { End(); }
};

}  // namespace space
