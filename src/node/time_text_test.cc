#include "node/time_text.h"

#include <gtest/gtest.h>

namespace space {
namespace {

TEST(TimeText, WhatIsWrittenReadsBack) {
  EXPECT_EQ(FormatTime(1'796'069'760'000'001), "2026-11-30T20:16:00.000001Z");
  EXPECT_EQ(ParseTime("2026-11-30T20:16:00.000001Z").value(), 1'796'069'760'000'001);
  EXPECT_EQ(ParseTime("2026-11-30T21:16:00.000001999+01:00").value(), 1'796'069'760'000'001);
  EXPECT_EQ(ParseTime("2026-11-30T20:16:00Z").value(), 1'796'069'760'000'000);
}

TEST(TimeText, RefusesWhatIsNoTime) {
  for (const char* text :
       {"", "2026", "2026-13-01T00:00:00Z", "2026-11-30T20:16:00", "x", "2026-11-30T20:16:00+1:00",
        "2026-11-30T20:16:00Zx", "-026-11-30T20:16:00Z", "2026-11-30T25:16:00Z"}) {
    EXPECT_FALSE(ParseTime(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace space
