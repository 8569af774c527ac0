#include <fcntl.h>

#include <gtest/gtest.h>

#include "base/fd.h"
#include "devices/serial/serial_log.h"
#include "devices/serial/serial_port.h"

namespace space {
namespace {

using std::chrono::steady_clock;

constexpr uint64_t kLimit = SerialLog::kMinLimitBytes;

class SerialTest : public testing::Test {
 protected:
  void Print(std::string_view text) {
    for (const char byte : text) {
      log_.Put(byte);
    }
  }
  std::string FileText() {
    const uint64_t size = *FileSize(file_.get());
    std::string text(size, '\0');
    EXPECT_TRUE(PreadFull(file_.get(), std::as_writable_bytes(std::span(text)), 0).has_value());
    return text;
  }

  UniqueFd file_ = *CreateMemfd("log");
  steady_clock::time_point now_{};
  SerialLog log_{*file_.Duplicate(), kLimit, {}, [this] { return now_; }};
  int irqs_ = 0;
  SerialPort port_{log_, [this] { ++irqs_; }};
};

TEST_F(SerialTest, Output_ReachesTheFileByLines) {
  Print("one\ntw");
  EXPECT_EQ(FileText(), "one\n");
  log_.Flush();
  EXPECT_EQ(FileText(), "one\ntw");
}

TEST_F(SerialTest, File_HasTheTimeBeforeEachLine) {
  int lines = 0;
  SerialLog log(*file_.Duplicate(), kLimit, [&lines] { return std::to_string(++lines); });
  for (const char byte : std::string("one\n\ntwo")) {
    log.Put(byte);
  }
  log.Flush();
  log.Put('!');
  log.Flush();
  EXPECT_EQ(FileText(), "1 one\n2 \n3 two!");
  EXPECT_EQ(log.tail(), "one\n\ntwo!");
}

TEST_F(SerialTest, File_NeverGrowsBeyondItsLimitAndKeepsStartAndEnd) {
  Print("first line\n");
  for (int line = 0; line < 20000; ++line) {
    Print("line " + std::to_string(line) + "\n");
    now_ += std::chrono::milliseconds(1);
    ASSERT_LE(*FileSize(file_.get()), kLimit);
  }
  const std::string text = FileText();
  EXPECT_TRUE(text.starts_with("first line\n"));
  EXPECT_TRUE(text.ends_with("line 19999\n"));
  EXPECT_NE(text.find("output cut here"), std::string::npos);
}

TEST_F(SerialTest, Flood_IsDroppedAndReported) {
  for (int line = 0; line < 5000; ++line) {
    Print(std::string(999, 'x') + "\n");
  }
  EXPECT_GT(log_.dropped_bytes(), 3'000'000U);
  now_ += std::chrono::seconds(1);
  Print("later\n");
  EXPECT_NE(FileText().find("came too fast"), std::string::npos);
  EXPECT_TRUE(FileText().ends_with("later\n"));
}

TEST_F(SerialTest, Panic_IsFoundInTheFirstSuchLine) {
  Print("[1.0] all fine\n[2.0] Kernel panic - not syncing: Attempted to kill init!\x1b[0m\r\n");
  Print("[2.1] end Kernel panic - not syncing: other\n");
  EXPECT_EQ(log_.panic(), "Attempted to kill init![0m");
  EXPECT_NE(log_.tail().find("all fine"), std::string::npos);
}

TEST_F(SerialTest, Tail_IsBounded) {
  Print(std::string(100000, 'y'));
  EXPECT_EQ(log_.tail().size(), SerialLog::kTailBytes);
}

TEST_F(SerialTest, FullDisk_IsNotTheGuestsProblem) {
  SerialLog log(*OpenReadWrite("/dev/full"), kLimit, {}, [this] { return now_; });
  log.Put('x');
  log.Put('\n');
  EXPECT_EQ(log.dropped_bytes(), 2U);
}

TEST_F(SerialTest, Port_SendsBytesAndIsAlwaysReady) {
  EXPECT_EQ(port_.Read(5), 0x60);
  port_.Write(0, 'h');
  port_.Write(0, '\n');
  EXPECT_EQ(FileText(), "h\n");
  EXPECT_EQ(irqs_, 0);
}

TEST_F(SerialTest, Port_RaisesEmptyInterruptsAsLinuxExpects) {
  EXPECT_EQ(port_.Read(2) & 0x0f, 0x01);
  port_.Write(1, 0x02);
  EXPECT_EQ(irqs_, 1);
  EXPECT_EQ(port_.Read(2) & 0x0f, 0x02);
  EXPECT_EQ(port_.Read(2) & 0x0f, 0x01);
  port_.Write(0, 'x');
  EXPECT_EQ(irqs_, 2);
  EXPECT_EQ(port_.Read(2) & 0x0f, 0x02);
  // Linux's test for lost interrupts: off and on again raises it again.
  port_.Write(1, 0x00);
  port_.Write(1, 0x02);
  EXPECT_EQ(irqs_, 3);
  EXPECT_EQ(port_.Read(2) & 0x0f, 0x02);
  port_.Write(1, 0x00);
  port_.Write(0, 'x');
  EXPECT_EQ(irqs_, 3);
}

TEST_F(SerialTest, Port_IsFoundByLinuxProbe) {
  port_.Write(1, 0x0f);  // interrupt enable keeps 4 bits
  EXPECT_EQ(port_.Read(1), 0x0f);
  port_.Write(1, 0);
  EXPECT_EQ(port_.Read(1), 0);
  port_.Write(4, 0x1a);  // loopback: RTS and OUT2 come back as CTS and DCD
  EXPECT_EQ(port_.Read(6) & 0xf0, 0x90);
  port_.Write(4, 0);
  EXPECT_EQ(port_.Read(6), 0xb0);
  port_.Write(2, 0x01);  // FIFOs: a 16550A
  EXPECT_EQ(port_.Read(2) >> 6, 3);
  port_.Write(7, 0x5a);
  EXPECT_EQ(port_.Read(7), 0x5a);
}

TEST_F(SerialTest, Port_KeepsTheDivisorApartFromData) {
  port_.Write(3, 0x83);
  port_.Write(0, 1);
  port_.Write(1, 2);
  EXPECT_EQ(port_.Read(0), 1);
  EXPECT_EQ(port_.Read(1), 2);
  port_.Write(3, 0x03);
  EXPECT_EQ(port_.Read(0), 0);
  EXPECT_EQ(port_.Read(1), 0);
  log_.Flush();
  EXPECT_EQ(FileText(), "");
}

TEST_F(SerialTest, Port_LoopbackAndStatusWritesSendNothing) {
  port_.Write(4, 0x10);
  port_.Write(0, 'x');
  port_.Write(5, 'x');
  port_.Write(6, 'x');
  port_.Write(9, 'x');
  EXPECT_EQ(port_.Read(9), 0xff);
  log_.Flush();
  EXPECT_EQ(FileText(), "");
}

}  // namespace
}  // namespace space
