// Bytes received and not yet used, in one piece. Consuming never moves memory, so that a read into
// `Prepare` may be pending meanwhile; only Prepare itself moves or grows.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace space::http {

class ReadBuffer {
 public:
  std::string_view data() const { return {bytes_.data() + begin_, end_ - begin_}; }
  bool empty() const { return begin_ == end_; }
  // Room to read into, in a buffer of at least `wanted` bytes that grows up to `limit` when full.
  // Empty when it already holds that much.
  std::span<char> Prepare(size_t wanted, size_t limit);
  void Commit(size_t count) { end_ += count; }
  void Consume(size_t count);
  std::string TakeAll();
  // Gives memory back when nothing is held. Not while a read into it is pending.
  void Shrink();

 private:
  std::vector<char> bytes_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace space::http
