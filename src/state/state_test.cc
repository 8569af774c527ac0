#include "state/state.h"

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "state/crc32c.h"

namespace space {
namespace {

std::string TwoSections() {
  StateWriter out;
  out.Add("clock", 2, "12345678");
  out.Add("serial", 1, "");
  return std::move(out).Take();
}

TEST(Crc32c, MatchesTheKnownValue) {
  // RFC 3720, B.4, and the usual check value.
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aaU);
}

TEST(Crc32c, GoesOnFromBefore) { EXPECT_EQ(Crc32c("6789", Crc32c("12345")), Crc32c("123456789")); }

TEST(State, Sections_SurviveAndUnknownOnesAreSkipped) {
  const std::string bytes = TwoSections();
  const auto reader = StateReader::Parse(bytes);
  ASSERT_TRUE(reader.has_value());
  EXPECT_EQ(reader->Require("clock", 2)->body, "12345678");
  EXPECT_EQ(reader->Require("serial", 1)->body, "");
  EXPECT_FALSE(reader->Find("net").has_value());
}

TEST(State, Require_RefusesMissingAndLaterSections) {
  const std::string bytes = TwoSections();
  const auto reader = StateReader::Parse(bytes);
  EXPECT_FALSE(reader->Require("net", 1).has_value());
  EXPECT_FALSE(reader->Require("clock", 1).has_value());
}

TEST(State, Parse_RefusesEveryTruncationAndAppendix) {
  const std::string whole = TwoSections();
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(StateReader::Parse(whole.substr(0, size)).has_value()) << size;
  }
  EXPECT_FALSE(StateReader::Parse(whole + "x").has_value());
}

TEST(State, Parse_RefusesEveryFlippedBit) {
  const std::string whole = TwoSections();
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(StateReader::Parse(bytes).has_value()) << bit;
  }
}

TEST(State, Parse_RefusesANameGivenTwice) {
  StateWriter out;
  out.Add("clock", 1, "a");
  out.Add("clock", 1, "b");
  EXPECT_FALSE(StateReader::Parse(std::move(out).Take()).has_value());
}

TEST(State, Body_MayBeAStateOfItsOwn) {
  StateWriter inner;
  inner.Add("mmio", 1, "x");
  StateWriter out;
  out.Add("device.0", 1, std::move(inner).Take());
  const std::string bytes = std::move(out).Take();
  const auto reader = StateReader::Parse(bytes);
  const auto nested = StateReader::Parse(reader->Require("device.0", 1)->body);
  ASSERT_TRUE(nested.has_value());
  EXPECT_EQ(nested->Require("mmio", 1)->body, "x");
}

}  // namespace
}  // namespace space
