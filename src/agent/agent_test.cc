// Parsers and small rules of the agent, without a guest.
#include <gtest/gtest.h>

#include "agent/accept.h"
#include "agent/access.h"
#include "agent/base64.h"
#include "agent/codec.h"
#include "agent/entry.h"
#include "agent/envelope.h"
#include "agent/environment.h"
#include "agent/gzip.h"
#include "agent/metadata.h"
#include "agent/multipart.h"
#include "agent/paths.h"
#include "agent/process.h"
#include "agent/proto/process.pb.h"
#include "agent/users.h"

namespace space::agent {
namespace {

const User kUser{.name = "user", .uid = 1000, .gid = 1000, .home = "/home/user", .groups = {}};

TEST(Users, Find_GivesIdsHomeAndSupplementaryGroups) {
  const UserDatabase users(
      "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1001::/home/user:/bin/sh\n",
      "user:x:1001:\nsudo:x:27:other,user\nadm:x:4:root\n");
  const auto user = users.Find("user");
  ASSERT_TRUE(user.has_value());
  EXPECT_EQ(user->uid, 1000U);
  EXPECT_EQ(user->gid, 1001U);
  EXPECT_EQ(user->home, "/home/user");
  EXPECT_EQ(user->groups, (std::vector<gid_t>{1001, 27}));
  EXPECT_EQ(users.GroupName(27), "sudo");
  EXPECT_EQ(users.GroupName(99), "99");
}

TEST(Users, Find_NamesTheUnknownUserAsEnvdDoes) {
  const auto user = UserDatabase("", "").Find("ghost");
  ASSERT_FALSE(user.has_value());
  EXPECT_EQ(user.error().code(), ErrorCode::kUnauthenticated);
  EXPECT_EQ(user.error().message(), "invalid username: 'ghost'");
}

TEST(Users, Find_KnowsRootWithoutPasswd) {
  const auto root = UserDatabase("", "").Find("root");
  ASSERT_TRUE(root.has_value());
  EXPECT_EQ(root->uid, 0U);
  EXPECT_EQ(root->home, "/root");
}

TEST(Users, Parse_SkipsHostileLines) {
  const std::string passwd =
      "a:x:-1:0::/:\nb:x:4294967295:0::/:\nc:x:1\n:x:1:1::/:\nd:x:1:1:" + std::string(70'000, 'x') +
      ":/:\n" + std::string("e\0:x:5:5::/:/\n", 14) + "f:x:0x10:0::/:\ngood:x:7:8::relative:\n";
  const UserDatabase users(passwd, ":::\nx:x:4294967295:good\ny:x:nope:good\n");
  for (const char* name : {"a", "b", "c", "", "d", "e", "f"}) {
    EXPECT_FALSE(users.Find(name).has_value()) << name;
  }
  const auto good = users.Find("good");
  ASSERT_TRUE(good.has_value());
  EXPECT_EQ(good->home, "/");
  EXPECT_EQ(good->groups, std::vector<gid_t>{8});
}

TEST(Paths, Resolve_FollowsEnvdsRules) {
  const auto resolve = [](std::string_view path, std::string_view workdir = "") {
    return ResolvePath(path, kUser, workdir).value_or("error");
  };
  EXPECT_EQ(resolve("/etc/../etc//passwd/."), "/etc/passwd");
  EXPECT_EQ(resolve("~"), "/home/user");
  EXPECT_EQ(resolve("~/a"), "/home/user/a");
  EXPECT_EQ(resolve("a/b"), "/home/user/a/b");
  EXPECT_EQ(resolve("a/b", "/code"), "/code/a/b");
  EXPECT_EQ(resolve("", "/code"), "/code");
  EXPECT_EQ(resolve("../../../.."), "/");
  EXPECT_EQ(resolve("~other"), "error");
  EXPECT_EQ(resolve(std::string_view("a\0b", 3)), "error");
  EXPECT_EQ(resolve(std::string(5000, 'x')), "error");
  EXPECT_EQ(BaseName("/"), "/");
  EXPECT_EQ(BaseName("/a/b"), "b");
  EXPECT_EQ(ParentPath("/a"), "/");
  EXPECT_EQ(ParentPath("/a/b"), "/a");
}

TEST(Environment, Compose_LaterWins) {
  const auto made = ComposeEnvironment({{"LANG", "C.UTF-8"}, {"HOME", "/wrong"}}, kUser,
                                       {{"A", "sandbox"}, {"B", "sandbox"}}, {{"B", "request"}});
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(made->at("PATH"), kDefaultPath);
  EXPECT_EQ(made->at("LANG"), "C.UTF-8");
  EXPECT_EQ(made->at("HOME"), "/home/user");
  EXPECT_EQ(made->at("LOGNAME"), "user");
  EXPECT_EQ(made->at("E2B_SANDBOX"), "true");
  EXPECT_EQ(made->at("A"), "sandbox");
  EXPECT_EQ(made->at("B"), "request");
}

TEST(Environment, Compose_RefusesBrokenNames) {
  for (const std::string& name : {std::string(), std::string("a=b"), std::string("a\0b", 3)}) {
    EXPECT_FALSE(ComposeEnvironment({}, kUser, {}, {{name, "x"}}).has_value());
  }
}

TEST(Environment, ParseFile_TakesQuotesExportsAndComments) {
  const auto parsed =
      ParseEnvironmentFile("# c\nexport A=1\nB=\"two words\"\n=x\nnonsense\nTZ=UTC");
  EXPECT_EQ(parsed, (Environment{{"A", "1"}, {"B", "two words"}, {"TZ", "UTC"}}));
}

TEST(Signature, MatchesTheSdksVector) {
  EXPECT_EQ(
      FileSignature("hello.txt", "read", "user", "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0", std::nullopt),
      "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E");
}

TEST(FileAccess, Check_GivesEnvdsMessagesInItsOrder) {
  Settings settings;
  settings.access_token = "secret";
  const auto check = [&settings](const std::string& target, http::Headers headers) {
    const http::RequestHead request{
        .method = "GET", .target = target, .headers = std::move(headers)};
    const auto parsed = http::ParseTarget(target);
    const auto checked = CheckFileAccess(request, *parsed, "read", settings, 1000);
    return checked ? std::string("ok") : checked.error().message();
  };
  const auto signed_target = [](const char* path, const char* expiration) {
    const std::string signature = FileSignature(path, "read", "", "secret", expiration);
    return std::string("/files?path=") + path + "&signature=" + http::PercentEncode(signature) +
           "&signature_expiration=" + expiration;
  };
  EXPECT_EQ(check("/files?path=a", {{"X-Access-Token", "secret"}}), "ok");
  EXPECT_EQ(check(signed_target("a", "2000"), {{"X-Access-Token", "wrong"}}),
            "access token present in header but does not match");
  EXPECT_EQ(check("/files?path=a", {}), "missing signature query parameter");
  EXPECT_EQ(check("/files?path=a&signature=v1_x", {}), "invalid signature");
  EXPECT_EQ(check(signed_target("a", "2000"), {}), "ok");
  EXPECT_EQ(check(signed_target("a", "999"), {}), "signature is already expired");
}

TEST(SelectUser, ReadsBasicThenQuery) {
  Settings settings;
  const auto name = [&settings](http::Headers headers, std::optional<std::string_view> query) {
    const http::RequestHead request{.method = "GET", .target = "/", .headers = std::move(headers)};
    const auto user = SelectUser(request, query, settings);
    return user ? user->name : user.error().message();
  };
  EXPECT_EQ(name({{"Authorization", "Basic cm9vdDo="}}, "nobody-else"), "root");
  EXPECT_EQ(name({}, "no-such-user"), "invalid username: 'no-such-user'");
  EXPECT_EQ(name({}, std::nullopt), "root");
  EXPECT_EQ(name({{"Authorization", "Basic !!"}}, std::nullopt),
            "malformed Basic Authorization header");
}

TEST(Base64, RoundTripsEveryLength) {
  std::string bytes;
  for (int i = 0; i < 260; ++i) {
    std::string text;
    AppendBase64(bytes, text);
    EXPECT_EQ(text.size() % 4, 0U);
    EXPECT_EQ(DecodeBase64(text).value_or("error"), bytes);
    bytes += static_cast<char>(i * 7);
  }
  std::string text;
  AppendBase64("hi\n", text);
  EXPECT_EQ(text, "aGkK");
  EXPECT_FALSE(DecodeBase64("a b").has_value());
}

TEST(Envelope, Parser_TakesBytesOneByOne) {
  std::string wire;
  AppendEnvelope(0, "one", wire);
  AppendEnvelope(Envelope::kEndOfStream, "", wire);
  EnvelopeParser parser;
  std::vector<Envelope> got;
  for (const char byte : wire) {
    parser.Feed({&byte, 1});
    auto next = parser.Next();
    ASSERT_TRUE(next.has_value());
    if (*next) {
      got.push_back(**next);
    }
  }
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(got[0].payload, "one");
  EXPECT_EQ(got[1].flags, Envelope::kEndOfStream);
  EXPECT_FALSE(parser.is_partial());
}

TEST(Envelope, Parser_RefusesHugeCompressedAndUnknown) {
  const auto code = [](std::string_view wire) {
    EnvelopeParser parser;
    parser.Feed(wire);
    const auto next = parser.Next();
    return next ? ErrorCode::kInternal : next.error().code();
  };
  EXPECT_EQ(code(std::string_view("\0\xff\xff\xff\xff", 5)), ErrorCode::kExhausted);
  EXPECT_EQ(code(std::string_view("\1\0\0\0\0", 5)), ErrorCode::kUnimplemented);
  EXPECT_EQ(code(std::string_view("\x40\0\0\0\0", 5)), ErrorCode::kInvalidArgument);
}

TEST(Codec, Decode_TakesBothSpellingsAndIgnoresUnknownFields) {
  rpc::process::StartRequest request;
  ASSERT_TRUE(Decode(
      Codec::kJson,
      R"({"process":{"cmd":"x","envs":{"A":"b"},"new":[1]},"stdin":false,"later":{}})", request));
  EXPECT_EQ(request.process().cmd(), "x");
  EXPECT_TRUE(request.has_stdin());
  EXPECT_FALSE(request.stdin());
  rpc::process::ProcessEvent event;
  ASSERT_TRUE(Decode(Codec::kJson, R"({"end":{"exit_code":3,"exited":true}})", event));
  EXPECT_EQ(event.end().exit_code(), 3);
  ASSERT_TRUE(Decode(Codec::kJson, R"({"end":{"exitCode":-1}})", event));
  EXPECT_EQ(event.end().exit_code(), -1);
}

TEST(Codec, Decode_RefusesBadAndTooDeepJson) {
  rpc::process::StartRequest request;
  EXPECT_FALSE(Decode(Codec::kJson, "{", request).has_value());
  EXPECT_FALSE(Decode(Codec::kJson, R"({"process":5})", request).has_value());
  EXPECT_FALSE(
      Decode(Codec::kJson, "{\"x\":" + std::string(100'000, '[') + "}", request).has_value());
  EXPECT_FALSE(Decode(Codec::kProto, "\xff\xff\xff", request).has_value());
}

TEST(DescribeExit, UsesGosWords) {
  EXPECT_EQ(DescribeExit(0).status, "exit status 0");
  EXPECT_EQ(DescribeExit(255 << 8).exit_code, 255);
  const ProcessEnd killed = DescribeExit(9);
  EXPECT_EQ(killed.exit_code, -1);
  EXPECT_FALSE(killed.exited);
  EXPECT_EQ(killed.status, "signal: killed");
  EXPECT_EQ(DescribeExit(15).status, "signal: terminated");
}

struct Collected : MultipartSink {
  Result<void> OnPartBegin(const PartHead& head) override {
    parts.push_back(head.name + "|" + head.filename.value_or("-") + "|");
    return {};
  }
  Result<void> OnPartData(std::string_view bytes) override {
    parts.back() += bytes;
    return {};
  }
  Result<void> OnPartEnd() override {
    parts.back() += "|end";
    return {};
  }
  std::vector<std::string> parts;
};

constexpr std::string_view kForm =
    "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/tmp/a \\\"b\\\".txt\"\r\n"
    "Content-Type: text/plain\r\n\r\nline\r\n--not\r\n--b\r\n"
    "content-disposition: form-data; name=file\r\n\r\n\r\n--b--\r\nepilogue";

TEST(Multipart, Parser_GivesPartsWhateverTheChunks) {
  for (size_t chunk = 1; chunk < kForm.size(); ++chunk) {
    Collected sink;
    MultipartParser parser("b", sink);
    for (size_t at = 0; at < kForm.size(); at += chunk) {
      ASSERT_TRUE(parser.Feed(kForm.substr(at, chunk)).has_value());
    }
    ASSERT_TRUE(parser.Finish().has_value());
    EXPECT_EQ(sink.parts,
              (std::vector<std::string>{"file|/tmp/a \"b\".txt|line\r\n--not|end", "file|-||end"}));
  }
}

TEST(Multipart, Parser_RefusesWhatIsCutOrGarbage) {
  const auto is_taken = [](std::string_view body) {
    Collected sink;
    MultipartParser parser("b", sink);
    return parser.Feed(body).has_value() && parser.Finish().has_value();
  };
  EXPECT_TRUE(is_taken("--b--"));
  EXPECT_FALSE(is_taken(""));
  EXPECT_FALSE(is_taken("--b\r\n\r\nx"));
  EXPECT_FALSE(is_taken("--bX\r\n\r\nx\r\n--b--"));
  EXPECT_FALSE(is_taken("--b\r\nno colon\r\n\r\nx\r\n--b--"));
  EXPECT_FALSE(is_taken("--b\r\nA: " + std::string(20'000, 'x')));
  EXPECT_FALSE(is_taken(std::string(20'000, 'x')));
}

TEST(Multipart, Boundary_IsFoundQuotedOrNot) {
  EXPECT_EQ(MultipartBoundary("multipart/form-data; boundary=abc").value_or(""), "abc");
  EXPECT_EQ(MultipartBoundary("multipart/form-data; x=y; Boundary=\"a b\"").value_or(""), "a b");
  EXPECT_FALSE(MultipartBoundary("multipart/form-data").has_value());
  EXPECT_FALSE(MultipartBoundary("multipart/form-data; boundary=").has_value());
}

TEST(Gzip, RoundTripsInBoundedSteps) {
  const std::string plain(1'000'000, 'x');
  std::string packed;
  Deflater deflater;
  deflater.Step(plain, false, packed);
  deflater.Step("", true, packed);
  std::string_view input = packed;
  Inflater inflater;
  std::string out;
  std::string step(4096, '\0');
  while (true) {
    const auto bytes = inflater.Step(input, step);
    ASSERT_TRUE(bytes.has_value());
    if (*bytes == 0) {
      break;
    }
    out.append(step, 0, *bytes);
  }
  EXPECT_EQ(out, plain);
  EXPECT_TRUE(inflater.CheckEnd().has_value());
}

TEST(Gzip, Inflater_RefusesGarbageAndCuts) {
  std::string step(64, '\0');
  std::string_view garbage = "this is not gzip";
  EXPECT_FALSE(Inflater().Step(garbage, step).has_value());
  std::string packed;
  Deflater deflater;
  deflater.Step("hello", true, packed);
  std::string_view cut = std::string_view(packed).substr(0, packed.size() - 2);
  Inflater inflater;
  ASSERT_TRUE(inflater.Step(cut, step).has_value());
  EXPECT_FALSE(inflater.CheckEnd().has_value());
}

TEST(Range, Parse_CoversTheForms) {
  const auto parse = [](std::string_view text) -> std::string {
    const auto range = ParseRange(text, 10);
    if (!range) {
      return "416";
    }
    return *range ? std::to_string((*range)->first) + "+" + std::to_string((*range)->count) : "all";
  };
  EXPECT_EQ(parse("bytes=0-3"), "0+4");
  EXPECT_EQ(parse("bytes=5-"), "5+5");
  EXPECT_EQ(parse("bytes=-3"), "7+3");
  EXPECT_EQ(parse("bytes=-99"), "0+10");
  EXPECT_EQ(parse("bytes=2-18446744073709551615"), "2+8");
  EXPECT_EQ(parse("bytes=10-"), "416");
  EXPECT_EQ(parse("bytes=-0"), "416");
  EXPECT_EQ(parse("bytes=3-2"), "all");
  EXPECT_EQ(parse("bytes=0-1,2-3"), "all");
  EXPECT_EQ(parse("lines=0-1"), "all");
}

TEST(AcceptEncoding, Choose_CompressesOnlyOnAsking) {
  EXPECT_EQ(ChooseCoding(std::nullopt), Coding::kIdentity);
  EXPECT_EQ(ChooseCoding("gzip, deflate"), Coding::kIdentity);
  EXPECT_EQ(ChooseCoding("gzip"), Coding::kGzip);
  EXPECT_EQ(ChooseCoding("gzip, identity;q=0"), Coding::kGzip);
  EXPECT_EQ(ChooseCoding("identity"), Coding::kIdentity);
  EXPECT_EQ(ChooseCoding("br, identity;q=0"), Coding::kNone);
  EXPECT_EQ(ChooseCoding("*;q=0"), Coding::kNone);
  EXPECT_EQ(ChooseCoding("gzip;q=0"), Coding::kIdentity);
}

TEST(Metadata, FromHeaders_LowersKeysAndChecksLimits) {
  const auto made = MetadataFromHeaders({{"X-Metadata-Owner", "me"}, {"Accept", "*/*"}});
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(*made, (Metadata{{"owner", "me"}}));
  EXPECT_FALSE(MetadataFromHeaders({{"X-Metadata-", "me"}}).has_value());
  EXPECT_FALSE(MetadataFromHeaders({{"X-Metadata-a", "\xc3\xa4"}}).has_value());
  EXPECT_FALSE(MetadataFromHeaders({{"X-Metadata-a", std::string(5000, 'x')}}).has_value());
  EXPECT_FALSE(MetadataFromHeaders({{"X-Metadata-" + std::string(247, 'k'), "x"}}).has_value());
}

TEST(Entry, Permissions_AreGos) {
  EXPECT_EQ(GoPermissions(S_IFREG | 0644), "-rw-r--r--");
  EXPECT_EQ(GoPermissions(S_IFDIR | 0755), "drwxr-xr-x");
  EXPECT_EQ(GoPermissions(S_IFLNK | 0777), "Lrwxrwxrwx");
  EXPECT_EQ(GoPermissions(S_IFDIR | S_ISVTX | 0777), "dtrwxrwxrwx");
  EXPECT_EQ(GoPermissions(S_IFCHR | 0666), "Dcrw-rw-rw-");
}

TEST(Entry, AsUtf8_ReplacesWhatIsNoUtf8) {
  EXPECT_EQ(AsUtf8("h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"),
            "h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(AsUtf8("a\xff"), "a\xef\xbf\xbd");
  EXPECT_EQ(AsUtf8("\xc0\xaf"), "\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(AsUtf8("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

}  // namespace
}  // namespace space::agent
