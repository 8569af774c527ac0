// A working set of foreign bytes. The checksum is mended for half of the inputs, so that what lies
// behind it is reached too.
#include <cstring>
#include <string>

#include "input.h"
#include "memory/working_set.h"
#include "state/crc32c.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace space;
  fuzz::Input input(data, size);
  const bool is_mended = input.Take<uint8_t>() % 2 == 1;
  const uint64_t pages = input.Take<uint16_t>();
  std::string bytes(input.TakeText(size));
  if (is_mended) {
    const uint32_t crc = Crc32c(bytes);
    bytes.append(reinterpret_cast<const char*>(&crc), sizeof(crc));
  }
  const auto set = WorkingSet::Decode(bytes, pages);
  if (!set.has_value()) {
    return 0;
  }
  uint64_t end = 0;
  for (const WorkingSet::Range& range : set->ranges) {
    SPACE_CHECK(range.pages.first >= end && range.pages.count > 0 && range.pages.end() <= pages);
    end = range.pages.end();
  }
  SPACE_CHECK(set->Encode() == bytes);
  if (pages > 0) {
    const auto memory = GuestMemory::Create(pages * 4096);
    SPACE_CHECK(memory.has_value() && Populate(*set, *memory).has_value());
  }
  return 0;
}
