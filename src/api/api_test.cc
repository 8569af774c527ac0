// The parts of the API that need no node: router, errors, list queries, network options, contract.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "api/errors.h"
#include "api/json_fields.h"
#include "api/list_query.h"
#include "api/network_check.h"
#include "api/router.h"
#include "base/fd.h"

namespace space {
namespace {

http::Target TargetOf(const std::string& raw) { return http::ParseTarget(raw).value(); }

TEST(Router, FindsByMethodAndPath) {
  const auto find = [](const char* method, const std::string& path) {
    return FindRoute(Routes(), method, TargetOf(path).segments);
  };
  const Match info = find("GET", "/sandboxes/iabc-00000000");
  ASSERT_NE(info.route, nullptr);
  EXPECT_EQ(info.route->pattern, "/sandboxes/{sandboxID}");
  EXPECT_EQ(info.parameters, std::vector<std::string>{"iabc-00000000"});
  EXPECT_EQ(find("POST", "/v2/sandboxes/i1/connect").route->pattern,
            "/v2/sandboxes/{sandboxID}/connect");
  const Match wrong_method = find("PATCH", "/sandboxes/i1");
  EXPECT_EQ(wrong_method.route, nullptr);
  EXPECT_TRUE(wrong_method.path_exists);
  for (const char* path :
       {"/", "/nothing", "/sandboxes/i1/timeout/more", "/sandboxes/", "//health"}) {
    EXPECT_EQ(find("GET", path).route, nullptr) << path;
  }
  // "%2F" stays inside its segment.
  EXPECT_EQ(find("GET", "/sandboxes/a%2Fb").parameters.at(0), "a/b");
}

TEST(Router, OnlyHealthIsOpenAndAdminIsWhatChangesKeysOrNode) {
  for (const Route& route : Routes()) {
    const std::string_view pattern = route.pattern;
    if (!route.scope) {
      EXPECT_EQ(pattern, "/health");
    } else if (pattern.starts_with("/space/v1/keys") || pattern == "/space/v1/shutdown" ||
               pattern == "/space/v1/config") {
      EXPECT_EQ(*route.scope, Scope::kAdmin) << pattern;
    } else {
      EXPECT_EQ(*route.scope, Scope::kUse) << pattern;
    }
  }
}

TEST(Router, SandboxIdOfTakesClientIdOff) {
  EXPECT_EQ(SandboxIdOf("iabc").value(), "iabc");
  EXPECT_EQ(SandboxIdOf("iabc-0000").value(), "iabc");
  EXPECT_EQ(SandboxIdOf("not-found").value(), "not");
  for (const std::string& text :
       {std::string(), std::string("a-b-c"), std::string("A"), std::string("../x"),
        std::string("a/"), std::string("-"), std::string("a-"), std::string(65, 'a')}) {
    const auto id = SandboxIdOf(text);
    ASSERT_FALSE(id.has_value()) << text;
    EXPECT_EQ(id.error().message(), "Invalid sandbox ID");
  }
}

TEST(Errors, CodeInTheBodyEqualsTheStatus) {
  for (const ErrorCode code :
       {ErrorCode::kInvalidArgument, ErrorCode::kNotFound, ErrorCode::kConflict,
        ErrorCode::kExhausted, ErrorCode::kInternal, ErrorCode::kTimeout}) {
    const int status = HttpStatusOf(code);
    const auto body = ParseJson(ErrorBody(status, "a \"quoted\" text"));
    ASSERT_TRUE(body.has_value());
    EXPECT_EQ(body->at("code").as_int64(), status);
    EXPECT_EQ(body->at("message").as_string(), "a \"quoted\" text");
  }
  EXPECT_EQ(HttpStatusOf(ErrorCode::kNotFound), 404);
  EXPECT_EQ(HttpStatusOf(ErrorCode::kExhausted), 503);
}

TEST(ListQuery, MetadataIsDecodedAsTheSdkEncodesIt) {
  // Seen on the wire from npm e2b 2.51.0 for {"k y": "v&1=%"} (E2B.md 2.5).
  const auto target = TargetOf("/v2/sandboxes?metadata=k%252520y%3Dv%2525261%25253D%252525");
  const auto query = ParseListQuery(target, ShownStateWords());
  ASSERT_TRUE(query.has_value()) << query.error().message();
  EXPECT_EQ(query->metadata, (TextMap{{"k y", "v&1=%"}}));
  EXPECT_EQ(DecodeMetadataFilter("a=b&c=d").value(), (TextMap{{"a", "b"}, {"c", "d"}}));
  EXPECT_TRUE(DecodeMetadataFilter("").value().empty());
  EXPECT_FALSE(DecodeMetadataFilter("a=b=c").has_value());
  EXPECT_FALSE(DecodeMetadataFilter("a").has_value());
  EXPECT_FALSE(DecodeMetadataFilter("a=%zz").has_value());
}

TEST(ListQuery, FiltersAndPagingAreChecked) {
  const StateWords words = ShownStateWords();
  const auto query =
      ParseListQuery(TargetOf("/v2/sandboxes?state=paused,running&limit=7&order=asc&template=Base"
                              "&startedAfter=2026-11-30T20:16:00Z"),
                     words);
  ASSERT_TRUE(query.has_value()) << query.error().message();
  EXPECT_EQ(query->states.size(), 5U);
  EXPECT_EQ(query->limit, 7U);
  EXPECT_TRUE(query->ascending);
  EXPECT_EQ(query->template_id, "base");
  EXPECT_EQ(query->started_after, 1'796'069'760'000'000);
  for (const char* bad : {"limit=0", "limit=101", "limit=x", "limit=-1", "state=sleeping",
                          "state=dead", "state=pausing", "order=up", "startedAfter=yesterday",
                          "template=base:v1", "nextToken=%25", "nextToken=aaaa"}) {
    const auto refused = ParseListQuery(TargetOf(std::string("/?") + bad), words);
    ASSERT_FALSE(refused.has_value()) << bad;
    EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument) << bad;
  }
}

// A sandbox must not vanish from a listing while it changes its state (E2B.md 2.5).
TEST(ListQuery, StatesInAMoveAreListedAsWhatTheyPromise) {
  const auto states = [](const char* text) {
    return ParseListQuery(TargetOf(text), ShownStateWords())->states;
  };
  using S = SandboxState;
  EXPECT_EQ(states("/?state=running"), (std::vector{S::kRunning, S::kSnapshotting}));
  EXPECT_EQ(states("/?state=paused"), (std::vector{S::kPausing, S::kPaused, S::kResuming}));
  EXPECT_EQ(states("/").size(), 5U);
}

TEST(ListQuery, SnapshotsAreAskedForByNameTagAndSource) {
  const auto query =
      ParseSnapshotQuery(TargetOf("/snapshots?name=Team%2FSnap%3Av1&sandboxID=iabc-0000&limit=3"));
  ASSERT_TRUE(query.has_value()) << query.error().message();
  EXPECT_EQ(query->name_space, "team");
  EXPECT_EQ(query->name, "snap");
  EXPECT_EQ(query->tag, "v1");
  EXPECT_EQ(query->source_id, "iabc");
  EXPECT_EQ(query->limit, 3U);
  const auto bare = ParseSnapshotQuery(TargetOf("/snapshots?name=snap"));
  EXPECT_EQ(bare->name, "snap");
  EXPECT_FALSE(bare->tag || bare->name_space);
  for (const char* bad : {"name=:v1", "name=a:", "name=/a", "name=a/", "sandboxID=../x", "limit=0",
                          "nextToken=zzzz"}) {
    const auto refused = ParseSnapshotQuery(TargetOf(std::string("/?") + bad));
    ASSERT_FALSE(refused.has_value()) << bad;
    EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument) << bad;
  }
}

TEST(ListQuery, CursorIsOfOneDirection) {
  constexpr Micros kTime = 1'796'069'760'000'001;
  for (const bool ascending : {false, true}) {
    const std::string cursor = EncodeCursor(kTime, "iabc", ascending);
    EXPECT_EQ(cursor.find_first_of("+/="), std::string::npos);
    const auto decoded = DecodeCursor(cursor, ascending);
    ASSERT_TRUE(decoded.has_value());
    EXPECT_EQ(*decoded, std::pair(kTime, std::string("iabc")));
    EXPECT_FALSE(DecodeCursor(cursor, !ascending).has_value());
  }
}

TEST(NetworkCheck, KeepsWhatIsKnownAndRefusesWhatCannotBeKept) {
  const auto read = [](const char* text) { return ReadNetwork(ParseJson(text)->as_object()); };
  const auto kept =
      read(R"({"network":{"denyOut":["0.0.0.0/0"],"allowOut":["*.example.com","1.2.3.4",
      "fd00::/8"],"allowPublicTraffic":false,"maskRequestHost":"localhost:${PORT}","new":1}})");
  ASSERT_TRUE(kept.has_value()) << kept.error().message();
  EXPECT_FALSE(kept->is_public);
  EXPECT_EQ(kept->kept.find("new"), std::string::npos);
  EXPECT_NE(kept->kept.find("fd00::/8"), std::string::npos);
  EXPECT_TRUE(read("{}")->is_public);
  EXPECT_TRUE(read(R"({"network":null})")->kept.empty());
  for (const auto& [text, field] :
       {std::pair(R"({"network":{"denyOut":["example.com"]}})", "network.denyOut"),
        std::pair(R"({"network":{"denyOut":["1.2.3.4/33"]}})", "network.denyOut"),
        std::pair(R"({"network":{"allowOut":["example.com"]}})", "network.allowOut"),
        std::pair(R"({"network":{"allowOut":["a b"]}})", "network.allowOut"),
        std::pair(R"({"network":{"allowOut":"x"}})", "network.allowOut"),
        std::pair(R"({"network":{"rules":{"a":[]}}})", "network.rules"),
        std::pair(R"({"network":{"httpsPorts":[1]}})", "network.httpsPorts"),
        std::pair(R"({"network":{"maskRequestHost":"a b"}})", "network.maskRequestHost"),
        std::pair(R"({"network":{"egressProxy":{"address":"a"}}})", "network.egressProxy"),
        std::pair(R"({"network":[]})", "network")}) {
    const auto refused = read(text);
    ASSERT_FALSE(refused.has_value()) << text;
    EXPECT_NE(refused.error().message().find(field), std::string::npos)
        << refused.error().message();
  }
}

TEST(JsonFields, NullIsAbsentAndErrorsNameTheField) {
  const auto value = ParseJson(
      R"({"n":null,"t":"x","i":3,"f":3.0,"h":1.5,"b":true,"m":{"a":"b"},"w":{"a":1},"e":[]})");
  const JsonFields fields(value->as_object());
  EXPECT_FALSE(fields.Text("n")->has_value());
  EXPECT_EQ(fields.Number("i")->value(), 3);
  EXPECT_EQ(fields.Number("f")->value(), 3);
  EXPECT_FALSE(fields.IsGiven("e"));
  EXPECT_TRUE(fields.IsGiven("m"));
  EXPECT_EQ(fields.Map("m").value(), (TextMap{{"a", "b"}}));
  EXPECT_EQ(fields.Number("h").error().message(), "validation error: h must be a whole number");
  EXPECT_FALSE(fields.Map("w").has_value());
  EXPECT_FALSE(fields.Text("i").has_value());
  EXPECT_FALSE(fields.Flag("t").has_value());
  EXPECT_FALSE(fields.Object("e").has_value());
}

// Reads "  /path:" and "    method:" lines: the file is written in that one form.
std::set<std::string> OperationsOf(const std::string& yaml) {
  std::set<std::string> operations;
  std::string path;
  size_t at = 0;
  while (at < yaml.size()) {
    const size_t end = std::min(yaml.find('\n', at), yaml.size());
    const std::string line = yaml.substr(at, end - at);
    at = end + 1;
    if (line.starts_with("  /") && line.ends_with(':')) {
      path = line.substr(2, line.size() - 3);
    }
    for (const std::string method : {"get", "post", "put", "patch", "delete"}) {
      if (line == "    " + method + ":") {
        std::string upper = method;
        std::transform(upper.begin(), upper.end(), upper.begin(),
                       [](char letter) { return static_cast<char>(letter - 'a' + 'A'); });
        operations.insert(upper + " " + path);
      }
    }
  }
  return operations;
}

TEST(Contract, RoutesAreThoseOfTheOpenApiFile) {
  const auto yaml = ReadFile(OPENAPI_FILE);
  ASSERT_TRUE(yaml.has_value()) << yaml.error().message();
  std::set<std::string> routes;
  for (const Route& route : Routes()) {
    routes.insert(std::string(route.method) + " " + std::string(route.pattern));
  }
  EXPECT_EQ(OperationsOf(*yaml), routes);
}

}  // namespace
}  // namespace space
