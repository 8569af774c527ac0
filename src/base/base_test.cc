#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/process.h"
#include "base/random.h"
#include "base/seqpacket.h"
#include "base/units.h"

namespace space {
namespace {

TEST(Result, While_PutsTheOuterStepFirst) {
  const auto failed = [&]() -> Result<void> {
    SPACE_TRY_VOID(Result<void>(Fail(ErrorCode::kNotFound, "no such image", "x")), "start sandbox");
    return {};
  }();
  EXPECT_EQ(failed.error().message(), "start sandbox: no such image: x");
  EXPECT_EQ(failed.error().code(), ErrorCode::kNotFound);
}

TEST(Fd, Open_NamesThePathAndKeepsErrno) {
  const auto fd = OpenReadOnly("/does/not/exist");
  ASSERT_FALSE(fd.has_value());
  EXPECT_EQ(fd.error().system_errno(), ENOENT);
  EXPECT_EQ(fd.error().message(), "open /does/not/exist: No such file or directory");
}

TEST(Bytes, Reader_RefusesShortInput) {
  ByteWriter writer;
  writer.PutString("hello");
  ByteReader whole(writer.bytes());
  EXPECT_EQ(*whole.GetString(5), "hello");
  EXPECT_TRUE(whole.Finish().has_value());
  ByteReader cut(std::string_view(writer.bytes()).substr(0, 6));
  EXPECT_FALSE(cut.GetString(5).has_value());
  ByteReader limited(writer.bytes());
  EXPECT_FALSE(limited.GetString(4).has_value());
}

TEST(Units, ParseSize_KnowsUnitsAndOverflow) {
  EXPECT_EQ(*ParseSize("512MiB"), MiB(512));
  EXPECT_EQ(*ParseSize("2g"), GiB(2));
  EXPECT_EQ(*ParseSize("4096"), 4096U);
  EXPECT_FALSE(ParseSize("12x").has_value());
  EXPECT_FALSE(ParseSize("").has_value());
  EXPECT_FALSE(ParseSize("-1").has_value());
  EXPECT_FALSE(ParseSize("99999999999999t").has_value());
}

TEST(Units, ParseDuration_KnowsUnits) {
  EXPECT_EQ(ParseDuration("250ms")->count(), 250);
  EXPECT_EQ(ParseDuration("30")->count(), 30'000);
  EXPECT_EQ(ParseDuration("1h")->count(), 3'600'000);
  EXPECT_FALSE(ParseDuration("1w").has_value());
}

TEST(Log, EscapeJson_ReplacesInvalidUtf8) {
  EXPECT_EQ(log::EscapeJson("a\"b\\\n\xff\xc3\xa9"), "a\\\"b\\\\\\u000a\\ufffd\xc3\xa9");
}

TEST(Random, Ids_HaveTheirShape) {
  EXPECT_EQ(RandomLowerAlnum(20).size(), 20U);
  EXPECT_NE(RandomHex(20), RandomHex(20));
  EXPECT_EQ(RandomUuid().size(), 36U);
}

TEST(Seqpacket, Packet_CarriesDescriptors) {
  auto pair = MakeSocketPair(SOCK_SEQPACKET);
  auto memory = CreateMemfd("x");
  ASSERT_TRUE(WriteFull(memory->get(), "abc").has_value());
  ASSERT_TRUE(SendPacket(pair->first.get(), "hi", {memory->get()}).has_value());
  auto packet = ReceivePacket(pair->second.get());
  ASSERT_TRUE(packet.has_value());
  EXPECT_EQ(packet->bytes, "hi");
  ASSERT_EQ(packet->fds.size(), 1U);
  EXPECT_EQ(*FileSize(packet->fds[0].get()), 3U);
}

TEST(Process, Spawn_PassesOnlyTheListedDescriptors) {
  int out[2];
  ASSERT_EQ(::pipe(out), 0);
  SpawnSpec spec;
  spec.program = "/bin/sh";
  spec.arguments = {"-c", "ls /proc/self/fd | wc -l; exit 7"};
  spec.environment = {"PATH=/usr/bin:/bin"};
  spec.stdout_fd = out[1];
  auto child = ChildProcess::Spawn(spec);
  ASSERT_TRUE(child.has_value());
  ::close(out[1]);
  char text[16] = {};
  ASSERT_GT(::read(out[0], text, sizeof(text) - 1), 0);
  ::close(out[0]);
  EXPECT_EQ(std::string(text), "4\n");  // 0, 1, 2 and the directory that ls reads
  const auto status = child->Wait(std::nullopt);
  ASSERT_TRUE(status.has_value() && status->has_value());
  EXPECT_EQ((*status)->value, 7);
}

TEST(Process, Spawn_ReportsAMissingProgram) {
  SpawnSpec spec;
  spec.program = "/no/such/program";
  const auto child = ChildProcess::Spawn(spec);
  ASSERT_FALSE(child.has_value());
  EXPECT_EQ(child.error().code(), ErrorCode::kNotFound);
}

TEST(Process, Destructor_KillsAndReaps) {
  pid_t pid = 0;
  {
    SpawnSpec spec;
    spec.program = "/bin/sleep";
    spec.arguments = {"60"};
    auto child = ChildProcess::Spawn(spec);
    ASSERT_TRUE(child.has_value());
    pid = child->pid();
  }
  EXPECT_EQ(::kill(pid, 0), -1);
}

}  // namespace
}  // namespace space
