// Control messages between daemon and VMM, the guest's hello, the exit record. What decodes encodes
// to the same bytes (a hello may have later fields behind it).
#include <cstdlib>
#include <string_view>

#include "wire/hello.h"
#include "wire/vmm_control.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto packet = space::wire::DecodeVmmPacket(bytes);
  if (packet.has_value() && space::wire::Encode(*packet) != bytes) {
    std::abort();
  }
  const auto hello = space::wire::DecodeHello(bytes);
  if (hello.has_value() && !bytes.starts_with(space::wire::Encode(*hello))) {
    std::abort();
  }
  static_cast<void>(space::wire::DecodeExitRecord(bytes));
  return 0;
}
