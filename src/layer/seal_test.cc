#include "layer/seal.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "base/fd.h"
#include "base/mapping.h"

namespace space {
namespace {

TEST(Seal, MemfdCanNeitherShrinkNorChangeAfterwards) {
  const UniqueFd fd = *CreateMemfd("layer");
  const std::array<std::byte, 8192> bytes{};
  ASSERT_TRUE(PwriteFull(fd.get(), bytes, 0).has_value());
  EXPECT_FALSE(IsSealed(fd.get()));
  ASSERT_TRUE(SealLayer(fd.get()).has_value());
  EXPECT_TRUE(IsSealed(fd.get()));
  EXPECT_NE(::ftruncate(fd.get(), 4096), 0);
  EXPECT_NE(::ftruncate(fd.get(), 16384), 0);
  EXPECT_FALSE(PwriteFull(fd.get(), bytes, 0).has_value());
  EXPECT_TRUE(SealLayer(fd.get()).has_value());
  // A machine's memory still maps it.
  EXPECT_TRUE(Mapping::Create(fd.get(), 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE).has_value());
}

TEST(Seal, MemfdMappedForWritingIsRefused) {
  const UniqueFd fd = *CreateMemfd("layer");
  ASSERT_EQ(::ftruncate(fd.get(), 4096), 0);
  const auto mapping = Mapping::Create(fd.get(), 4096, PROT_READ | PROT_WRITE, MAP_SHARED);
  ASSERT_TRUE(mapping.has_value());
  EXPECT_EQ(SealLayer(fd.get()).error().code(), ErrorCode::kConflict);
  EXPECT_FALSE(IsSealed(fd.get()));
}

TEST(Seal, FileBecomesReadOnly) {
  std::string path = "/tmp/seal_test_XXXXXX";
  const UniqueFd fd(::mkstemp(path.data()));
  ASSERT_TRUE(fd.valid());
  EXPECT_FALSE(IsSealed(fd.get()));
  EXPECT_TRUE(SealLayer(fd.get()).has_value());
  EXPECT_TRUE(IsSealed(fd.get()));
  EXPECT_TRUE(SealLayer(fd.get()).has_value());
  ::unlink(path.c_str());
  EXPECT_FALSE(SealLayer(-1).has_value());
  EXPECT_FALSE(IsSealed(-1));
}

}  // namespace
}  // namespace space
