// A sidecar of foreign bytes beside a small file. Its checksum is mended for half of the inputs.
#include <string>
#include <vector>

#include "base/fd.h"
#include "input.h"
#include "layer/checksum.h"
#include "state/crc32c.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace space;
  fuzz::Input input(data, size);
  const auto flags = input.Take<uint8_t>();
  const UniqueFd fd = *CreateMemfd("layer");
  const std::vector<std::byte> bytes(100, std::byte{7});
  SPACE_CHECK(PwriteFull(fd.get(), bytes, 3 * kChecksumBlockBytes).has_value());
  const std::string own = *ComputeChecksums(fd.get());
  std::string sidecar = (flags & 2) != 0 ? own : std::string();
  while ((flags & 2) != 0 && !input.is_empty()) {
    const size_t at = input.Take<uint8_t>() % sidecar.size();
    sidecar[at] = static_cast<char>(input.Take<uint8_t>());
  }
  sidecar.append(input.TakeText(size));
  if ((flags & 1) != 0) {
    sidecar.resize(sidecar.size() - std::min<size_t>(sidecar.size(), 4));
    const uint32_t crc = Crc32c(sidecar);
    sidecar.append(reinterpret_cast<const char*>(&crc), sizeof(crc));
  }
  const bool is_accepted = VerifyChecksums(fd.get(), sidecar).has_value();
  // Only a sidecar that says the same may pass; it may cover a hole with its sums as well.
  SPACE_CHECK(!is_accepted || sidecar.size() >= own.size());
  SPACE_CHECK(is_accepted || sidecar != own);
  return 0;
}
