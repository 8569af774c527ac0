#include "state/state.h"

#include <algorithm>
#include <ranges>

#include "base/bytes.h"
#include "state/crc32c.h"

namespace space {
namespace {

constexpr uint64_t kMagic = 0x4554415453435053;  // "SPCSTATE"
constexpr uint32_t kFormat = 1;

// Checksum of a section's header: all fields before it, then the name.
std::string EncodeHeader(std::string_view name, uint16_t version, std::string_view body) {
  ByteWriter out;
  out.Put(static_cast<uint16_t>(name.size()));
  out.Put(version);
  out.Put(uint32_t{0});
  out.Put(static_cast<uint64_t>(body.size()));
  out.Put(Crc32c(body));
  return std::move(out).Take();
}

Result<StateSection> ReadSection(ByteReader& in) {
  const std::string_view start = in.rest();
  SPACE_TRY(const uint16_t name_bytes, in.Get<uint16_t>(), "section name length");
  StateSection section;
  SPACE_TRY(section.version, in.Get<uint16_t>(), "section version");
  SPACE_TRY(const uint32_t reserved, in.Get<uint32_t>(), "section header");
  SPACE_TRY(const uint64_t body_bytes, in.Get<uint64_t>(), "section size");
  SPACE_TRY(const uint32_t body_crc, in.Get<uint32_t>(), "section checksum");
  const std::string_view fields = start.substr(0, start.size() - in.rest().size());
  SPACE_TRY(const uint32_t header_crc, in.Get<uint32_t>(), "section checksum");
  if (name_bytes == 0 || name_bytes > StateWriter::kMaxName || reserved != 0) {
    return Fail(ErrorCode::kInvalidArgument, "section header is damaged");
  }
  SPACE_TRY(section.name, in.GetRaw(name_bytes), "section name");
  if (Crc32c(section.name, Crc32c(fields)) != header_crc) {
    return Fail(ErrorCode::kInvalidArgument, "section header is damaged");
  }
  SPACE_TRY(section.body, in.GetRaw(body_bytes), section.name);
  if (Crc32c(section.body) != body_crc) {
    return Fail(ErrorCode::kInvalidArgument, "section body is damaged", section.name);
  }
  return section;
}

}  // namespace

void StateWriter::Add(std::string_view name, uint16_t version, std::string_view body) {
  SPACE_CHECK(!name.empty() && name.size() <= kMaxName);
  const std::string header = EncodeHeader(name, version, body);
  ByteWriter out;
  out.PutRaw(header);
  out.Put(Crc32c(name, Crc32c(header)));
  out.PutRaw(name);
  out.PutRaw(body);
  sections_ += out.bytes();
  ++count_;
}

std::string StateWriter::Take() && {
  ByteWriter out;
  out.Put(kMagic);
  out.Put(kFormat);
  out.Put(count_);
  out.PutRaw(sections_);
  return std::move(out).Take();
}

Result<StateReader> StateReader::Parse(std::string_view bytes) {
  ByteReader in(bytes);
  SPACE_TRY(const uint64_t magic, in.Get<uint64_t>(), "read state");
  if (magic != kMagic) {
    return Fail(ErrorCode::kInvalidArgument, "state does not begin with its magic number");
  }
  SPACE_TRY(const uint32_t format, in.Get<uint32_t>(), "read state");
  if (format != kFormat) {
    return Fail(ErrorCode::kInvalidArgument, "state is of another format", std::to_string(format));
  }
  SPACE_TRY(const uint32_t count, in.Get<uint32_t>(), "read state");
  if (count > kMaxSections) {
    return Fail(ErrorCode::kInvalidArgument, "state has too many sections");
  }
  StateReader reader;
  for (uint32_t at = 0; at < count; ++at) {
    SPACE_TRY(const StateSection section, ReadSection(in), "read state section");
    if (reader.Find(section.name).has_value()) {
      return Fail(ErrorCode::kInvalidArgument, "section comes twice", section.name);
    }
    reader.sections_.push_back(section);
  }
  SPACE_TRY_VOID(in.Finish(), "read state");
  return reader;
}

std::optional<StateSection> StateReader::Find(std::string_view name) const {
  const auto found = std::ranges::find(sections_, name, &StateSection::name);
  return found == sections_.end() ? std::nullopt : std::optional(*found);
}

Result<StateSection> StateReader::Require(std::string_view name, uint16_t newest) const {
  const std::optional<StateSection> section = Find(name);
  if (!section.has_value()) {
    return Fail(ErrorCode::kInvalidArgument, "state has no section", name);
  }
  if (section->version == 0 || section->version > newest) {
    return Fail(ErrorCode::kInvalidArgument, "section is of a later version", name);
  }
  return *section;
}

}  // namespace space
