// Saved state: parse, and what parses survives being written again.
#include <cstdlib>
#include <string>
#include <string_view>

#include "state/state.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto reader = space::StateReader::Parse(bytes);
  if (reader.has_value()) {
    space::StateWriter out;
    for (const space::StateSection& section : reader->sections()) {
      out.Add(section.name, section.version, section.body);
    }
    if (std::move(out).Take() != bytes) {
      std::abort();
    }
  }
  return 0;
}
