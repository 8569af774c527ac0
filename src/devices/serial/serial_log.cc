#include "devices/serial/serial_log.h"

#include <unistd.h>

#include <algorithm>

namespace space {
namespace {

constexpr size_t kMaxBuffered = 512;
constexpr size_t kMaxLine = 512;
constexpr size_t kMaxPanic = 200;
constexpr std::string_view kPanicMark = "Kernel panic - not syncing: ";

std::string_view LastBytes(std::string_view text, size_t count) {
  return text.size() > count ? text.substr(text.size() - count) : text;
}

}  // namespace

SerialLog::SerialLog(UniqueFd fd, uint64_t limit_bytes, Stamp stamp, Clock clock)
    : fd_(std::move(fd)),
      limit_bytes_(std::max(limit_bytes, kMinLimitBytes)),
      stamp_(std::move(stamp)),
      clock_(std::move(clock)),
      refilled_(clock_()) {
  // A file that already holds something (of an earlier boot) counts.
  const off_t end = ::lseek(fd_.get(), 0, SEEK_END);
  file_bytes_ = end > 0 ? static_cast<uint64_t>(end) : 0;
}

SerialLog::~SerialLog() { Flush(); }

void SerialLog::Put(char byte) {
  const std::lock_guard lock(mutex_);
  tail_.push_back(byte);
  if (tail_.size() >= 2 * kTailBytes) {
    tail_.erase(0, tail_.size() - kTailBytes);
  }
  if (byte == '\n') {
    TakeLine();
  } else if (line_.size() < kMaxLine) {
    line_.push_back(byte);
  }
  if (is_line_start_ && stamp_) {
    buffer_ += stamp_() + " ";
  }
  is_line_start_ = byte == '\n';
  buffer_.push_back(byte);
  if (byte == '\n' || buffer_.size() >= kMaxBuffered) {
    FlushLocked();
  }
}

void SerialLog::Flush() {
  const std::lock_guard lock(mutex_);
  TakeLine();
  FlushLocked();
}

void SerialLog::TakeLine() {
  const size_t mark = line_.find(kPanicMark);
  if (mark != std::string::npos && panic_.empty()) {
    panic_ = line_.substr(mark + kPanicMark.size(), kMaxPanic);
    std::erase_if(panic_, [](char byte) { return byte < ' ' || byte > '~'; });
  }
  line_.clear();
}

bool SerialLog::Spend(uint64_t bytes) {
  const auto now = clock_();
  const auto passed = std::min<std::chrono::nanoseconds>(now - refilled_, std::chrono::seconds(1));
  refilled_ = now;
  budget_bytes_ += static_cast<uint64_t>(passed.count()) * kBytesPerSecond / 1'000'000'000;
  budget_bytes_ = std::min(budget_bytes_, kBytesPerSecond);
  if (bytes > budget_bytes_) {
    return false;
  }
  budget_bytes_ -= bytes;
  return true;
}

void SerialLog::FlushLocked() {
  if (buffer_.empty()) {
    return;
  }
  if (!Spend(buffer_.size())) {
    dropped_bytes_ += buffer_.size();
    buffer_.clear();
    return;
  }
  if (dropped_bytes_ != dropped_reported_) {
    WriteOut("\n[space: " + std::to_string(dropped_bytes_ - dropped_reported_) +
             " bytes dropped, output came too fast]\n");
    dropped_reported_ = dropped_bytes_;
  }
  WriteOut(buffer_);
  buffer_.clear();
}

void SerialLog::WriteOut(std::string_view text) {
  if (file_bytes_ + text.size() > limit_bytes_) {
    const uint64_t kept = limit_bytes_ / 2;
    if (::ftruncate(fd_.get(), static_cast<off_t>(kept)) != 0) {
      dropped_bytes_ += text.size();
      return;
    }
    ::lseek(fd_.get(), 0, SEEK_END);
    const uint64_t cut = file_bytes_ - kept;
    file_bytes_ = kept;
    // `text` is the end of the tail, unless it is a note of ours, which the cut makes needless.
    WriteOut("\n[space: output cut here, about " + std::to_string(cut) +
             " bytes; the newest follows]\n" + std::string(LastBytes(tail_, kTailBytes)));
    return;
  }
  if (WriteFull(fd_.get(), text).has_value()) {
    file_bytes_ += text.size();
  } else {
    dropped_bytes_ += text.size();  // disk full: the guest must not notice
  }
}

std::string SerialLog::tail() const {
  const std::lock_guard lock(mutex_);
  return std::string(LastBytes(tail_, kTailBytes));
}

std::string SerialLog::panic() const {
  const std::lock_guard lock(mutex_);
  return panic_;
}

uint64_t SerialLog::dropped_bytes() const {
  const std::lock_guard lock(mutex_);
  return dropped_bytes_;
}

}  // namespace space
