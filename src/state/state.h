// Saved state: a file of named sections, each with its version, size and CRC-32C, so that a newer
// reader knows old sections and an older one skips new ones. Nesting is by composition: the body of
// a section may be a whole state of its own (one per device).
//
//   magic u64, format u32, section count u32, then per section:
//   name length u16, version u16, reserved u32 (0), body size u64, body crc u32, header crc u32,
//   name, body                                            (all little-endian, base/bytes.h)
//
// Readers treat the bytes as possibly broken or foreign. Not shared between threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace space {

struct StateSection {
  std::string_view name;
  uint16_t version = 0;
  std::string_view body;  // read with ByteReader
};

class StateWriter {
 public:
  static constexpr size_t kMaxName = 64;

  // `name` is unique in this state, at most kMaxName bytes; `version` starts at 1 and goes up when
  // the body's meaning changes. `body` comes from a ByteWriter.
  void Add(std::string_view name, uint16_t version, std::string_view body);
  std::string Take() &&;

 private:
  uint32_t count_ = 0;
  std::string sections_;
};

class StateReader {
 public:
  static constexpr uint32_t kMaxSections = 4096;

  // Looks at every header and checksum at once; `bytes` must outlive the reader.
  //   errors: kInvalidArgument for foreign, cut or damaged bytes, a later format, a name given
  //   twice
  static Result<StateReader> Parse(std::string_view bytes);

  std::optional<StateSection> Find(std::string_view name) const;
  // kInvalidArgument when it is missing or of a version above `newest` (made by a later program).
  Result<StateSection> Require(std::string_view name, uint16_t newest) const;
  const std::vector<StateSection>& sections() const { return sections_; }

 private:
  std::vector<StateSection> sections_;
};

}  // namespace space
