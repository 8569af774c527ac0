#include "base/bytes.h"

namespace space {

tl::unexpected<Error> ByteReader::Short() {
  return Fail(ErrorCode::kInvalidArgument, "message ends early");
}

Result<std::string> ByteReader::GetString(size_t limit) {
  SPACE_TRY(const uint32_t size, Get<uint32_t>(), "read text");
  if (size > limit) {
    return Fail(ErrorCode::kInvalidArgument, "text in message is longer than allowed");
  }
  SPACE_TRY(const std::string_view bytes, GetRaw(size), "read text");
  return std::string(bytes);
}

Result<std::string_view> ByteReader::GetRaw(size_t size_bytes) {
  if (rest_.size() < size_bytes) {
    return Short();
  }
  const std::string_view bytes = rest_.substr(0, size_bytes);
  rest_.remove_prefix(size_bytes);
  return bytes;
}

Result<void> ByteReader::Finish() const {
  if (!rest_.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "message is longer than its content");
  }
  return {};
}

}  // namespace space
