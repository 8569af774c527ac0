#include "http/head_check.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "http/body_decoder.h"

namespace space::http {
namespace {

using std::string_literals::operator""s;

struct RefusedHead {
  std::string head;
  int status = 400;
};

// Every way in which two parsers could disagree, or that the API never needs.
std::vector<RefusedHead> RefusedRequests() {
  const std::string get = "GET / HTTP/1.1\r\n";
  const std::string host = "Host: x\r\n";
  return {
      {get + host + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"},
      {get + host + "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n"},
      {get + host + "Content-Length: 1\r\nContent-Length: 1\r\n\r\n"},
      {get + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n"},
      {get + host + "Content-Length: 1, 1\r\n\r\n"},
      {get + host + "Content-Length: +1\r\n\r\n"},
      {get + host + "Content-Length: -1\r\n\r\n"},
      {get + host + "Content-Length: 0x1\r\n\r\n"},
      {get + host + "Content-Length: 1 1\r\n\r\n"},
      {get + host + "Content-Length:\r\n\r\n"},
      {get + host + "Content-Length: 9007199254740993\r\n\r\n"},
      {get + host + "Content-Length: 99999999999999999999\r\n\r\n"},
      {get + host + "Transfer-Encoding: gzip\r\n\r\n"},
      {get + host + "Transfer-Encoding: gzip, chunked\r\n\r\n"},
      {get + host + "Transfer-Encoding: chunked, chunked\r\n\r\n"},
      {get + host + "Transfer-Encoding: chunked, identity\r\n\r\n"},
      {get + host + "Transfer-Encoding: xchunked\r\n\r\n"},
      {get + host + "Transfer-Encoding: \"chunked\"\r\n\r\n"},
      {get + host + "Transfer-Encoding:\r\n\r\n"},
      {get + host +
       "Transfer-Encoding: \x0b"
       "chunked\r\n\r\n"},
      {get + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"},
      {get + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n"},
      {get + host + "Transfer-Encoding : chunked\r\n\r\n"},
      {get + host + "Transfer-Encoding\t: chunked\r\n\r\n"},
      {get + host + " Transfer-Encoding: chunked\r\n\r\n"},
      {get + host + "X: a\r\n b\r\n\r\n"},
      {get + host + "X: a\r\n\tb\r\n\r\n"},
      {get + host + "X: a\nContent-Length: 5\r\n\r\n"},
      {get + host + "X: a\rContent-Length: 5\r\n\r\n"},
      {get + host + "X: a\r\r\n\r\n"},
      {get + host + "X: a\0b\r\n\r\n"s},
      {get + host + "X: a\x01\r\n\r\n"},
      {get + host + "X: a\x7f\r\n\r\n"},
      {get + host + "X\r\n\r\n"},
      {get + host + ": a\r\n\r\n"},
      {get + host + "X Y: a\r\n\r\n"},
      {get + host + "X\x80: a\r\n\r\n"},
      {get + host + "(X): a\r\n\r\n"},
      {get + "\r\n"},
      {get + host + host + "\r\n"},
      {get + host + "host: x\r\n\r\n"},
      {get + "Host:\r\n\r\n"},
      {get + "Host: a b\r\n\r\n"},
      {get + "Host: a/b\r\n\r\n"},
      {get + "Host: a@b\r\n\r\n"},
      {get + "Host: a,b\r\n\r\n"},
      {"GET  / HTTP/1.1\r\n" + host + "\r\n"},
      {"GET / HTTP/1.1 \r\n" + host + "\r\n"},
      {" GET / HTTP/1.1\r\n" + host + "\r\n"},
      {"GET\t/ HTTP/1.1\r\n" + host + "\r\n"},
      {"GET /a b HTTP/1.1\r\n" + host + "\r\n"},
      {"GET / http/1.1\r\n" + host + "\r\n"},
      {"GET / HTTP/1.1x\r\n" + host + "\r\n"},
      {"GET / HTTP/11\r\n" + host + "\r\n"},
      {"GET /\r\n" + host + "\r\n"},
      {"GET / HTTP/2.0\r\n" + host + "\r\n", 505},
      {"GET / HTTP/0.9\r\n" + host + "\r\n", 505},
      {"PRI * HTTP/2.0\r\n\r\n", 505},
      {"GET http://x/ HTTP/1.1\r\n" + host + "\r\n"},
      {"GET x:80 HTTP/1.1\r\n" + host + "\r\n"},
      {"OPTIONS * HTTP/1.1\r\n" + host + "\r\n"},
      {"CONNECT x:80 HTTP/1.1\r\n" + host + "\r\n", 405},
      {"GET /a#b HTTP/1.1\r\n" + host + "\r\n"},
      {"GET /\x80 HTTP/1.1\r\n" + host + "\r\n"},
      {"GET /\x7f HTTP/1.1\r\n" + host + "\r\n"},
      {"GET /\0 HTTP/1.1\r\n"s + host + "\r\n"},
      {"G(T / HTTP/1.1\r\n" + host + "\r\n"},
      {"G\x80T / HTTP/1.1\r\n" + host + "\r\n"},
      {std::string(33, 'G') + " / HTTP/1.1\r\n" + host + "\r\n"},
      {"GET /" + std::string(17 * 1024, 'a') + " HTTP/1.1\r\n" + host + "\r\n", 414},
      {get + host + "X: " + std::string(65 * 1024, 'a') + "\r\n\r\n", 431},
      {get + host + "Expect: something\r\n\r\n", 417},
      {"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"},
      {get + host + "\r\nX"},
      {get + host},
      {"\r\n" + get + host + "\r\n"},
      {""},
  };
}

TEST(CheckRequestHead, RefusesEveryAmbiguousHead) {
  for (const RefusedHead& refused : RefusedRequests()) {
    const auto checked = CheckRequestHead(refused.head);
    ASSERT_FALSE(checked.has_value()) << refused.head.substr(0, 200);
    EXPECT_EQ(checked.error().status, refused.status) << refused.head.substr(0, 200);
    EXPECT_FALSE(checked.error().reason.empty());
  }
}

TEST(CheckRequestHead, CountsFields) {
  std::string head = "GET / HTTP/1.1\r\nHost: x\r\n";
  for (int i = 1; i < 200; ++i) {
    head += "X: 1\r\n";
  }
  EXPECT_TRUE(CheckRequestHead(head + "\r\n").has_value());
  EXPECT_EQ(CheckRequestHead(head + "X: 1\r\n\r\n").error().status, 431);
}

TEST(CheckRequestHead, ReturnsWhatWasSent) {
  const auto checked = CheckRequestHead(
      "PATCH /a%2Fb?c=|d HTTP/1.1\r\nhost: [::1]:80\r\nX-Metadata-Owner:  m\xc3\xa9\t \r\n"
      "Empty:\r\nTransfer-Encoding: Chunked\r\nExpect: 100-Continue\r\n\r\n");
  ASSERT_TRUE(checked.has_value()) << checked.error().reason;
  EXPECT_EQ(checked->head.method, "PATCH");
  EXPECT_EQ(checked->head.target, "/a%2Fb?c=|d");
  EXPECT_EQ(checked->head.headers.all().size(), 5U);
  EXPECT_EQ(checked->head.headers.Find("x-metadata-owner"), "m\xc3\xa9");
  EXPECT_EQ(checked->head.headers.Find("empty"), "");
  EXPECT_EQ(checked->framing, Framing::kChunked);
  EXPECT_TRUE(checked->keep_alive);
  EXPECT_TRUE(checked->expects_continue);
}

TEST(CheckRequestHead, ReadsConnectionAsAList) {
  const auto closes = [](const std::string& value) {
    return !CheckRequestHead("GET / HTTP/1.1\r\nHost: x\r\nConnection: " + value + "\r\n\r\n")
                ->keep_alive;
  };
  EXPECT_TRUE(closes("close"));
  EXPECT_TRUE(closes("x, Close ,y"));
  EXPECT_FALSE(closes("keep-alive"));
  EXPECT_FALSE(closes("closed"));
  EXPECT_FALSE(closes(""));
}

TEST(CheckResponseHead, RefusesEveryAmbiguousHead) {
  const std::string ok = "HTTP/1.1 200 OK\r\n";
  const std::vector<std::string> refused = {
      ok + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
      ok + "Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
      ok + "Transfer-Encoding: gzip, chunked\r\n\r\n",
      ok + "X : a\r\n\r\n",
      ok + "X: a\r\n b\r\n\r\n",
      ok + "X: a\nY: b\r\n\r\n",
      ok + "X: \0\r\n\r\n"s,
      "HTTP/1.1 20 OK\r\n\r\n",
      "HTTP/1.1 2000 OK\r\n\r\n",
      "HTTP/1.1 099 OK\r\n\r\n",
      "HTTP/1.1 600 OK\r\n\r\n",
      "HTTP/1.1 +20 OK\r\n\r\n",
      "HTTP/1.1  200 OK\r\n\r\n",
      "HTTP/1.1 200 O\x01K\r\n\r\n",
      "HTTP/1.1\r\n\r\n",
      "HTTP/2.0 200 OK\r\n\r\n",
      "http/1.1 200 OK\r\n\r\n",
      "ICY 200 OK\r\n\r\n",
      "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
      "HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n",
      "HTTP/1.1 101 Up\r\nTransfer-Encoding: chunked\r\n\r\n",
      "",
  };
  for (const std::string& head : refused) {
    EXPECT_FALSE(CheckResponseHead(head).has_value()) << head;
  }
}

TEST(CheckResponseHead, FindsTheFraming) {
  const auto framing = [](const std::string& head) {
    return CheckResponseHead("HTTP/1.1 " + head + "\r\n\r\n")->framing;
  };
  EXPECT_EQ(framing("200"), Framing::kUntilClose);
  EXPECT_EQ(framing("200 "), Framing::kUntilClose);
  EXPECT_EQ(framing("200 OK\r\nContent-Length: 0"), Framing::kNone);
  EXPECT_EQ(framing("200 OK\r\nContent-Length: 7"), Framing::kLength);
  EXPECT_EQ(framing("200 OK\r\nTransfer-Encoding: chunked"), Framing::kChunked);
  EXPECT_EQ(framing("204 No Content"), Framing::kNone);
  EXPECT_EQ(framing("304 Not Modified\r\nContent-Length: 7"), Framing::kNone);
  EXPECT_EQ(framing("100 Continue"), Framing::kNone);
}

TEST(HeadScanner, FindsTheEndAcrossPieces) {
  const std::string head = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  HeadScanner scanner;
  for (size_t size = 0; size < head.size(); ++size) {
    const auto length = scanner.Scan(std::string_view(head).substr(0, size));
    ASSERT_TRUE(length.has_value());
    EXPECT_FALSE(length->has_value());
  }
  EXPECT_EQ(scanner.Scan(head + "next")->value_or(0), head.size());
}

TEST(HeadScanner, RefusesBeforeTheEnd) {
  EXPECT_EQ(HeadScanner().Scan("GET / HTTP/1.1\n").error().status, 400);
  EXPECT_EQ(HeadScanner().Scan("GET / HTTP/1.1\rX").error().status, 400);
  EXPECT_EQ(HeadScanner().Scan("\x16\x03\x01").error().status, 400);
  EXPECT_EQ(HeadScanner().Scan("G\0"s).error().status, 400);
  EXPECT_EQ(HeadScanner({.bytes = 8}).Scan("GET / HTT").error().status, 431);
  EXPECT_TRUE(HeadScanner({.bytes = 8}).Scan("GET / HT").has_value());
}

// What Decode gives for `wire` after a chunked head; an error's text starts with '!'.
std::string DecodeChunked(std::string_view wire) {
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  auto decoder = BodyDecoder::ForRequest(head, *CheckRequestHead(head));
  std::string body;
  while (decoder.has_value() && !decoder->is_done()) {
    char out[3];
    const auto step = decoder->Decode(wire, out);
    if (!step) {
      return "!" + step.error().message();
    }
    if (step->consumed + step->produced == 0) {
      return "!incomplete";
    }
    body.append(out, step->produced);
    wire.remove_prefix(step->consumed);
  }
  return body + "|" + std::string(wire);
}

TEST(BodyDecoder, DecodesChunksAndLeavesTheRest) {
  EXPECT_EQ(DecodeChunked("5\r\nhello\r\n0\r\n\r\nGET"), "hello|GET");
  EXPECT_EQ(DecodeChunked("A;x=\"y\"\r\n0123456789\r\n1\r\na\r\n000\r\nT: 1\r\n\r\n"),
            "0123456789a|");
}

// Found by the fuzzer: an empty chunked body in pieces tripped an assertion of Beast.
TEST(BodyDecoder, TakesAnEmptyChunkedBodyByteByByte) {
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  auto decoder = BodyDecoder::ForRequest(head, *CheckRequestHead(head));
  const std::string_view wire = "0\r\n\r\n";
  char out[3];
  for (size_t size = 1; size < wire.size(); ++size) {
    EXPECT_EQ(decoder->Decode(wire.substr(0, size), out)->consumed, 0U);
  }
  EXPECT_EQ(decoder->Decode(wire, out)->consumed, wire.size());
  EXPECT_TRUE(decoder->is_done());
}

TEST(BodyDecoder, RefusesBrokenChunks) {
  for (const char* wire :
       {"\r\n", "x\r\n", "-1\r\na\r\n", "0x1\r\na\r\n", "5\nhello\n", "1\r\nab\r\n", "1\r\na\n\r\n",
        "10000000000000000\r\na", "fffffffffffffffff\r\n", " 1\r\na\r\n", "0\r\nX\r\n\r\n"}) {
    // Beast waits for the end of a line or of the trailer before it judges it.
    const std::string decoded = DecodeChunked(std::string(wire) + "\r\n\r\n0\r\n\r\n");
    EXPECT_EQ(decoded[0], '!') << wire << " gave " << decoded;
    EXPECT_NE(decoded, "!incomplete") << wire;
  }
}

}  // namespace
}  // namespace space::http
