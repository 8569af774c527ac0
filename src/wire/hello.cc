#include "wire/hello.h"

#include "base/bytes.h"

namespace space::wire {

namespace {
constexpr size_t kMaxText = 128;
}  // namespace

std::string Encode(const Hello& hello) {
  ByteWriter out;
  out.Put(Hello::kMagic);
  out.Put(hello.version);
  out.PutString(hello.agent_version);
  out.PutString(hello.envd_version);
  out.PutString(hello.kernel_release);
  out.PutString(hello.boot_id);
  return std::move(out).Take();
}

Result<Hello> DecodeHello(std::string_view bytes) {
  ByteReader in(bytes);
  SPACE_TRY(const uint32_t magic, in.Get<uint32_t>(), "read hello");
  if (magic != Hello::kMagic) {
    return Fail(ErrorCode::kGuestFault, "hello does not begin with its magic number");
  }
  Hello hello;
  SPACE_TRY(hello.version, in.Get<uint16_t>(), "read hello version");
  SPACE_TRY(hello.agent_version, in.GetString(kMaxText), "read hello agent version");
  SPACE_TRY(hello.envd_version, in.GetString(kMaxText), "read hello envd version");
  SPACE_TRY(hello.kernel_release, in.GetString(kMaxText), "read hello kernel release");
  SPACE_TRY(hello.boot_id, in.GetString(kMaxText), "read hello boot id");
  return hello;  // a later version may append fields
}

}  // namespace space::wire
