#include "boot/aml.h"

#include "base/bytes.h"

namespace space::boot::aml {
namespace {

constexpr uint8_t kNameOp = 0x08;
constexpr uint8_t kBytePrefix = 0x0a;
constexpr uint8_t kWordPrefix = 0x0b;
constexpr uint8_t kDwordPrefix = 0x0c;
constexpr uint8_t kStringPrefix = 0x0d;
constexpr uint8_t kScopeOp = 0x10;
constexpr uint8_t kBufferOp = 0x11;
constexpr uint8_t kPackageOp = 0x12;
constexpr uint8_t kExtendedPrefix = 0x5b;
constexpr uint8_t kDeviceOp = 0x82;

std::string Byte(uint8_t value) { return std::string(1, static_cast<char>(value)); }

std::string NameSegment(std::string_view name) {
  std::string out;
  if (name.starts_with('\\')) {
    out = "\\";
    name.remove_prefix(1);
  }
  out += name;
  out.append(name.size() < 4 ? 4 - name.size() : 0, '_');
  return out;
}

// PkgLength (20.2.4) and what it covers; it counts its own bytes.
std::string WithLength(std::string_view body) {
  constexpr size_t kOneByteMost = 0x3f;
  constexpr size_t kMostPerExtra = 12;  // 4 bits, then 8 for each further byte
  if (body.size() + 1 <= kOneByteMost) {
    return Byte(static_cast<uint8_t>(body.size() + 1)) + std::string(body);
  }
  size_t extra = 1;
  while (body.size() + 1 + extra >= size_t{1} << (kMostPerExtra + 8 * (extra - 1))) {
    ++extra;
  }
  const size_t length = body.size() + 1 + extra;
  std::string out = Byte(static_cast<uint8_t>(extra << 6 | (length & 0xf)));
  for (size_t at = 0; at < extra; ++at) {
    out += Byte(static_cast<uint8_t>(length >> (4 + 8 * at)));
  }
  return out + std::string(body);
}

}  // namespace

std::string Scope(std::string_view name, std::string_view body) {
  return Byte(kScopeOp) + WithLength(NameSegment(name) + std::string(body));
}

std::string Device(std::string_view name, std::string_view body) {
  return Byte(kExtendedPrefix) + Byte(kDeviceOp) +
         WithLength(NameSegment(name) + std::string(body));
}

std::string Name(std::string_view name, std::string_view object) {
  return Byte(kNameOp) + NameSegment(name) + std::string(object);
}

std::string Integer(uint32_t value) {
  ByteWriter out;
  if (value <= 1) {
    out.Put(static_cast<uint8_t>(value));  // ZeroOp, OneOp
  } else if (value <= 0xff) {
    out.Put(kBytePrefix);
    out.Put(static_cast<uint8_t>(value));
  } else if (value <= 0xffff) {
    out.Put(kWordPrefix);
    out.Put(static_cast<uint16_t>(value));
  } else {
    out.Put(kDwordPrefix);
    out.Put(value);
  }
  return std::move(out).Take();
}

std::string String(std::string_view text) {
  return Byte(kStringPrefix) + std::string(text) + Byte(0);
}

// 6.1.5: three letters of 5 bits, four hexadecimal digits, big-endian.
std::string EisaId(std::string_view id) {
  const auto letter = [&](size_t at) { return static_cast<uint32_t>(id[at] - '@') & 0x1f; };
  const uint32_t product =
      static_cast<uint32_t>(std::stoul(std::string(id.substr(3)), nullptr, 16));
  const uint32_t value = letter(0) << 26 | letter(1) << 21 | letter(2) << 16 | product;
  ByteWriter out;
  out.Put(kDwordPrefix);
  out.Put(__builtin_bswap32(value));
  return std::move(out).Take();
}

std::string Package(std::string_view elements, uint8_t count) {
  return Byte(kPackageOp) + WithLength(Byte(count) + std::string(elements));
}

std::string Resources(std::string_view descriptors) {
  // End tag; checksum 0 means "not computed" (6.4.2.9).
  const std::string all = std::string(descriptors) + Byte(0x79) + Byte(0);
  return Byte(kBufferOp) + WithLength(Integer(static_cast<uint32_t>(all.size())) + all);
}

std::string Memory32(uint32_t start, uint32_t size_bytes) {
  ByteWriter out;
  out.Put(uint8_t{0x86});
  out.Put(uint16_t{9});
  out.Put(uint8_t{1});  // writable
  out.Put(start);
  out.Put(size_bytes);
  return std::move(out).Take();
}

std::string Interrupt(uint32_t gsi) {
  ByteWriter out;
  out.Put(uint8_t{0x89});
  out.Put(uint16_t{6});
  out.Put(uint8_t{0x3});  // consumer, edge
  out.Put(uint8_t{1});
  out.Put(gsi);
  return std::move(out).Take();
}

std::string Ports(uint16_t first, uint8_t count) {
  ByteWriter out;
  out.Put(uint8_t{0x47});
  out.Put(uint8_t{1});
  out.Put(first);
  out.Put(first);
  out.Put(uint8_t{1});
  out.Put(count);
  return std::move(out).Take();
}

}  // namespace space::boot::aml
