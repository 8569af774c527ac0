// A frozen layer's checksums, CRC-32C per 64 KiB of its file, kept in a sidecar file: made once
// when the layer enters the store, verified in the background once per boot of the host.
//
//   magic u64, version u32, extent count u32, layer file bytes u64, then per extent first block
//   u32, block count u32 (ascending, apart), then a CRC-32C u32 per block of all extents, then
//   CRC-32C u32 of all before it
//
// Blocks in no extent are holes: they must read as zeros. Both calls read every byte of data once
// and block. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace space {

constexpr uint64_t kChecksumBlockBytes = 65536;

// The sidecar's bytes for the file as it is.
Result<std::string> ComputeChecksums(int fd);

// `sidecar` is foreign. kInvalidArgument when it is damaged, when the file has another size, and
// for the first block that differs, which the message names.
Result<void> VerifyChecksums(int fd, std::string_view sidecar);

}  // namespace space
