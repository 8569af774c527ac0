// Little-endian byte writer and checked reader, for messages and saved state.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/result.h"

namespace space {

static_assert(std::endian::native == std::endian::little, "x86-64 only");

class ByteWriter {
 public:
  template <std::integral T>
  void Put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  // 32-bit length, then the bytes.
  void PutString(std::string_view text) {
    Put(static_cast<uint32_t>(text.size()));
    bytes_.append(text);
  }
  void PutRaw(std::string_view bytes) { bytes_.append(bytes); }

  const std::string& bytes() const { return bytes_; }
  std::string Take() && { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads what ByteWriter wrote. A short or oversized input fails the read and every later one; check
// `Finish` (or each Result) before using what was read. The input must outlive the reader.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  template <std::integral T>
  Result<T> Get() {
    if (rest_.size() < sizeof(T)) {
      return Short();
    }
    T value;
    std::memcpy(&value, rest_.data(), sizeof(value));
    rest_.remove_prefix(sizeof(value));
    return value;
  }
  Result<std::string> GetString(size_t limit);
  Result<std::string_view> GetRaw(size_t size_bytes);

  std::string_view rest() const { return rest_; }
  // kInvalidArgument when bytes are left over.
  Result<void> Finish() const;

 private:
  static tl::unexpected<Error> Short();
  std::string_view rest_;
};

}  // namespace space
