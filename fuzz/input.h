// Takes typed values off a fuzz input; zeros when it is used up.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace space::fuzz {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(data, size) {}

  bool is_empty() const { return rest_.empty(); }
  template <class T>
  T Take() {
    T value{};
    const size_t size = std::min(sizeof(T), rest_.size());
    if (size > 0) {  // an empty input may have no address
      std::memcpy(&value, rest_.data(), size);
      rest_ = rest_.subspan(size);
    }
    return value;
  }
  std::span<const std::byte> TakeBytes(size_t limit) {
    const auto taken = std::as_bytes(rest_.first(std::min(limit, rest_.size())));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  std::string_view TakeText(size_t limit) {
    const auto taken = TakeBytes(limit);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

 private:
  std::span<const uint8_t> rest_;
};

}  // namespace space::fuzz
