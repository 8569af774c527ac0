#include "http/read_buffer.h"

#include <algorithm>

namespace space::http {

std::span<char> ReadBuffer::Prepare(size_t wanted, size_t limit) {
  if (begin_ > 0) {
    std::copy(bytes_.begin() + static_cast<std::ptrdiff_t>(begin_),
              bytes_.begin() + static_cast<std::ptrdiff_t>(end_), bytes_.begin());
    end_ -= begin_;
    begin_ = 0;
  }
  size_t size = std::max(bytes_.size(), wanted);
  if (end_ == size) {
    size *= 2;
  }
  size = std::min(size, limit);
  if (bytes_.size() < size) {
    bytes_.resize(size);
  }
  return end_ < size ? std::span<char>(bytes_).subspan(end_, size - end_) : std::span<char>();
}

void ReadBuffer::Shrink() {
  if (empty()) {
    bytes_ = std::vector<char>();
    begin_ = end_ = 0;
  }
}

void ReadBuffer::Consume(size_t count) { begin_ += std::min(count, end_ - begin_); }

std::string ReadBuffer::TakeAll() {
  std::string all(data());
  begin_ = end_;
  return all;
}

}  // namespace space::http
