#include "layer/checksum.h"

#include <unistd.h>

#include <vector>

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/units.h"
#include "state/crc32c.h"

namespace space {
namespace {

// Data in blocks 0, 1, 5 and the short last one, 8; holes between.
UniqueFd SparseSample() {
  UniqueFd fd = *CreateMemfd("layer");
  const std::vector<std::byte> page(kPageBytes, std::byte{7});
  for (const uint64_t block : {0, 1, 5}) {
    EXPECT_TRUE(PwriteFull(fd.get(), page, block * kChecksumBlockBytes + 8192).has_value());
  }
  EXPECT_TRUE(
      PwriteFull(fd.get(), std::span(page).first(100), 8 * kChecksumBlockBytes).has_value());
  return fd;
}

void Flip(int fd, uint64_t at) {
  std::array<std::byte, 1> byte;
  ASSERT_TRUE(PreadFull(fd, byte, at).has_value());
  byte[0] ^= std::byte{1};
  ASSERT_TRUE(PwriteFull(fd, byte, at).has_value());
}

TEST(Checksums, Verify_AcceptsTheFileAndItsSidecarSkipsHoles) {
  const UniqueFd fd = SparseSample();
  const auto sidecar = ComputeChecksums(fd.get());
  ASSERT_TRUE(sidecar.has_value());
  EXPECT_EQ(sidecar->size(), 24 + 3 * 8 + 4 * 4 + 4U);
  const auto verified = VerifyChecksums(fd.get(), *sidecar);
  EXPECT_TRUE(verified.has_value()) << verified.error().message();
}

TEST(Checksums, Verify_NamesTheFirstBlockThatDiffers) {
  const UniqueFd fd = SparseSample();
  const std::string sidecar = *ComputeChecksums(fd.get());
  Flip(fd.get(), 8 * kChecksumBlockBytes + 99);
  for (const uint64_t block : {8, 6, 5, 3, 1}) {  // 6 and 3 were holes
    Flip(fd.get(), block * kChecksumBlockBytes + 50);
    const auto verified = VerifyChecksums(fd.get(), sidecar);
    ASSERT_FALSE(verified.has_value());
    EXPECT_EQ(verified.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(verified.error().message().find("block " + std::to_string(block) + " "),
              std::string::npos)
        << verified.error().message();
  }
}

TEST(Checksums, Verify_AcceptsAHoleThatWasFilledWithZeros) {
  const UniqueFd fd = SparseSample();
  const std::string sidecar = *ComputeChecksums(fd.get());
  ASSERT_TRUE(PwriteFull(fd.get(), std::vector<std::byte>(MiB(1) / 8), 2 * kChecksumBlockBytes)
                  .has_value());
  EXPECT_TRUE(VerifyChecksums(fd.get(), sidecar).has_value());
}

TEST(Checksums, Verify_RefusesAFileOfAnotherSizeAndAnEmptiedOne) {
  const UniqueFd fd = SparseSample();
  const std::string sidecar = *ComputeChecksums(fd.get());
  ASSERT_EQ(::ftruncate(fd.get(), 8 * kChecksumBlockBytes + 99), 0);
  EXPECT_FALSE(VerifyChecksums(fd.get(), sidecar).has_value());
  ASSERT_EQ(::ftruncate(fd.get(), 0), 0);
  ASSERT_EQ(::ftruncate(fd.get(), 8 * kChecksumBlockBytes + 100), 0);
  const auto emptied = VerifyChecksums(fd.get(), sidecar);
  EXPECT_NE(emptied.error().message().find("block 0 "), std::string::npos);
}

TEST(Checksums, Verify_RefusesEveryDamagedSidecar) {
  const UniqueFd fd = SparseSample();
  const std::string sidecar = *ComputeChecksums(fd.get());
  for (size_t at = 0; at < sidecar.size(); ++at) {
    std::string damaged = sidecar;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    EXPECT_FALSE(VerifyChecksums(fd.get(), damaged).has_value()) << at;
    EXPECT_FALSE(VerifyChecksums(fd.get(), sidecar.substr(0, at)).has_value()) << at;
    // With the checksum of the whole mended, the values themselves must be looked at.
    const std::string_view covered = std::string_view(damaged).substr(0, damaged.size() - 4);
    const std::string mended = std::string(covered) + [&] {
      ByteWriter out;
      out.Put(Crc32c(covered));
      return out.bytes();
    }();
    if (at < sidecar.size() - 4) {
      EXPECT_FALSE(VerifyChecksums(fd.get(), mended).has_value()) << at;
    }
  }
}

TEST(Checksums, Compute_TakesAnEmptyFile) {
  const UniqueFd fd = *CreateMemfd("layer");
  EXPECT_TRUE(VerifyChecksums(fd.get(), *ComputeChecksums(fd.get())).has_value());
}

}  // namespace
}  // namespace space
