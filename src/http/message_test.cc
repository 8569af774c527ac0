#include "http/message.h"

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "http/head_writer.h"

namespace space::http {
namespace {

struct DecodeCase {
  std::string_view text;
  bool plus_is_space;
  std::optional<std::string_view> decoded;  // none: refused
};

TEST(PercentDecode, FollowsTheTable) {
  const std::vector<DecodeCase> cases = {
      {"", false, ""},
      {"abc", false, "abc"},
      {"a%20b", false, "a b"},
      {"%2F%2f", false, "//"},
      {"%e4%BD%A0", false, "\xe4\xbd\xa0"},
      {"a+b", false, "a+b"},
      {"a+b", true, "a b"},
      {"%2B", true, "+"},
      {"%25%32%30", true, "%20"},
      {"%ff", false, "\xff"},
      {"%", false, std::nullopt},
      {"%4", false, std::nullopt},
      {"abc%4", false, std::nullopt},
      {"%g0", false, std::nullopt},
      {"%0g", false, std::nullopt},
      {"% 1", false, std::nullopt},
      {"%-1", false, std::nullopt},
      {"%00", false, std::nullopt},
      {"a%00b", true, std::nullopt},
  };
  for (const DecodeCase& c : cases) {
    const auto decoded = PercentDecode(c.text, c.plus_is_space);
    EXPECT_EQ(decoded.has_value(), c.decoded.has_value()) << c.text;
    EXPECT_EQ(decoded.value_or(""), c.decoded.value_or("")) << c.text;
  }
}

TEST(PercentEncode, KeepsUnreservedOnly) {
  EXPECT_EQ(PercentEncode("aZ09-._~"), "aZ09-._~");
  EXPECT_EQ(PercentEncode("a/b c%+\xff"), "a%2Fb%20c%25%2B%FF");
}

TEST(ParseTarget, DecodesAfterSplitting) {
  const auto target = ParseTarget("/templates/team%2Fmy-snap%3Av1?a=b%26c&flag&x=1&x=2&=&&y=%2B+");
  ASSERT_TRUE(target.has_value());
  EXPECT_EQ(target->path, "/templates/team%2Fmy-snap%3Av1");
  EXPECT_EQ(target->segments, (std::vector<std::string>{"templates", "team/my-snap:v1"}));
  EXPECT_EQ(target->Query("a"), "b&c");
  EXPECT_EQ(target->Query("flag"), "");
  EXPECT_EQ(target->Query("x"), "1");
  EXPECT_EQ(target->Query("y"), "+ ");
  EXPECT_EQ(target->Query("none"), std::nullopt);
  EXPECT_EQ(target->query.size(), 6U);
}

TEST(ParseTarget, KeepsEmptySegments) {
  EXPECT_TRUE(ParseTarget("/")->segments.empty());
  EXPECT_EQ(ParseTarget("/a/")->segments, (std::vector<std::string>{"a", ""}));
  EXPECT_EQ(ParseTarget("//a")->segments, (std::vector<std::string>{"", "a"}));
}

TEST(ParseTarget, RefusesBrokenEscapesAndOtherForms) {
  for (const char* raw : {"", "*", "a", "http://x/", "/%zz", "/a?b=%", "/a?%00", "/%00"}) {
    const auto target = ParseTarget(raw);
    ASSERT_FALSE(target.has_value()) << raw;
    EXPECT_EQ(target.error().code(), ErrorCode::kInvalidArgument);
  }
}

TEST(Headers, LookUpIgnoresCase) {
  Headers headers{{"X-Api-Key", "1"}, {"x-api-key", "2"}, {"Other", "3"}};
  EXPECT_EQ(headers.Find("X-API-KEY"), "1");
  headers.Set("x-API-key", "4");
  EXPECT_EQ(headers.Find("x-api-key"), "4");
  EXPECT_EQ(headers.all().size(), 2U);
  headers.Remove("OTHER");
  EXPECT_FALSE(headers.Find("other").has_value());
}

TEST(HeadWriter, WritesFramingFromTheBodyAlone) {
  ResponseHead head{200,
                    {{"Content-Length", "5"},
                     {"Transfer-Encoding", "gzip"},
                     {"Connection", "keep-alive"},
                     {"Keep-Alive", "timeout=5"},
                     {"X", "1"}}};
  const auto text =
      WriteResponseHead(head, {BodyLength::Kind::kLength, 7}, ConnectionField::kLeaveOut);
  EXPECT_EQ(text.value_or(""), "HTTP/1.1 200 OK\r\nX: 1\r\nContent-Length: 7\r\n\r\n");
}

TEST(HeadWriter, RefusesWhatWouldSplitTheHead) {
  const std::vector<Header> bad = {{"X", "a\r\nY: b"}, {"X", "a\nb"}, {"X", std::string("a\0", 2)},
                                   {"X Y", "a"},       {"", "a"},     {"X:", "a"}};
  for (const Header& header : bad) {
    EXPECT_FALSE(WriteResponseHead({200, {header}}, {}, ConnectionField::kLeaveOut).has_value());
    EXPECT_FALSE(WriteRequestHead({"GET", "/", {header}}, {}).has_value());
  }
  EXPECT_FALSE(WriteRequestHead({"GET", "/a b", {}}, {}).has_value());
  EXPECT_FALSE(WriteRequestHead({"GET", "http://x/", {}}, {}).has_value());
  EXPECT_FALSE(WriteRequestHead({"G T", "/", {}}, {}).has_value());
  EXPECT_FALSE(WriteResponseHead({99, {}}, {}, ConnectionField::kLeaveOut).has_value());
}

}  // namespace
}  // namespace space::http
