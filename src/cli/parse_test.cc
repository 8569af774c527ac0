#include <csignal>
#include <cstdlib>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "cli/attach.h"
#include "cli/command_table.h"
#include "cli/connect_wire.h"
#include "cli/context.h"
#include "cli/credentials.h"
#include "cli/daemon.h"
#include "cli/envd.h"
#include "cli/listener_owner.h"
#include "cli/sandbox_options.h"
#include "cli/transfer.h"

namespace space::cli {
namespace {

using Words = std::vector<std::string>;

TEST(Options, WordsAfterTheFirstAreTheCommand) {
  const auto parsed =
      ParseArguments(ProcessOptions() + SizeOptions(), 1,
                     {"-e", "A=b", "-it", "--memory=1g", "python3", "-c", "-e", "--"});
  ASSERT_TRUE(parsed) << parsed.error().message();
  EXPECT_EQ(parsed->words(), (Words{"python3", "-c", "-e", "--"}));
  EXPECT_EQ(parsed->Values("env"), Words{"A=b"});
  EXPECT_TRUE(parsed->Has("interactive"));
  EXPECT_TRUE(parsed->Has("tty"));
  EXPECT_EQ(parsed->Value("memory"), "1g");
}

TEST(Options, DoubleDashEndsThem) {
  const auto parsed = ParseArguments(ProcessOptions(), 1, {"-eX=1", "--", "-weird", "-t"});
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->words(), (Words{"-weird", "-t"}));
  EXPECT_EQ(parsed->Value("env"), "X=1");
}

TEST(Options, AnUnknownOneIsAnErrorThatNamesIt) {
  for (const auto& [words, named] :
       std::vector<std::pair<Words, std::string>>{{{"--nope", "true"}, "--nope"},
                                                  {{"-x", "true"}, "-x"},
                                                  {{"--tty=1"}, "--tty"},
                                                  {{"--env"}, "--env"}}) {
    const auto parsed = ParseArguments(ProcessOptions(), 1, words);
    ASSERT_FALSE(parsed);
    EXPECT_NE(parsed.error().message().find(named), std::string::npos);
  }
}

TEST(Environment, EntriesComeFromArgumentsFilesAndOurOwn) {
  std::map<std::string, std::string> variables;
  ::setenv("SPACE_TEST_VALUE", "mine", 1);  // NOLINT(concurrency-mt-unsafe)
  ASSERT_TRUE(AddVariables("# comment\n\n  A=1=2 \r\nB=\nSPACE_TEST_VALUE\nSPACE_TEST_UNSET\n", "f",
                           variables));
  EXPECT_EQ(variables, (std::map<std::string, std::string>{
                           {"A", "1=2 "}, {"B", ""}, {"SPACE_TEST_VALUE", "mine"}}));
  const auto wrong = AddVariables("A=1\nnot a name=2\n", "vars.env", variables);
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message().find("vars.env:2"), std::string::npos);
}

TEST(CreateBody, CarriesSizesAndNamesWhatCannotBeRead) {
  const auto body = [](Words words) {
    return MakeCreateBody(ParseArguments(SizeOptions(), 1, words).value());
  };
  EXPECT_EQ(
      boost::json::serialize(
          body({"--cpus", "4", "--memory", "1g", "--disk", "1k", "--timeout", "90s"}).value()),
      R"({"templateID":"base","timeout":90,"cpuCount":4,"memoryMB":1024,"diskSizeMB":1})");
  EXPECT_EQ(body({}).value().at("timeout").as_int64(), 3600);
  EXPECT_EQ(body({"--memory", "0"}).value().at("memoryMB").as_int64(), 0);  // the daemon refuses it
  for (const std::string option : {"--cpus", "--memory", "--disk", "--timeout"}) {
    const auto wrong = body({option, "lots"});
    ASSERT_FALSE(wrong);
    EXPECT_NE(wrong.error().message().find(option), std::string::npos);
  }
}

TEST(Wire, EnvelopesAreCutOutOfAnyPieces) {
  const std::string stream =
      MakeEnvelope("one") + MakeEnvelope("") + MakeEnvelope(std::string(70000, 'x'));
  EnvelopeReader reader;
  std::vector<size_t> sizes;
  for (const char byte : stream) {
    reader.Feed({&byte, 1});
    while (const auto next = reader.Next().value()) {
      sizes.push_back(next->payload.size());
    }
  }
  EXPECT_EQ(sizes, (std::vector<size_t>{3, 0, 70000}));
}

TEST(Wire, OversizedAndCompressedEnvelopesAreRefused) {
  EnvelopeReader reader;
  reader.Feed(std::string("\0\x7f\xff\xff\xff", 5));
  EXPECT_FALSE(reader.Next());
  EnvelopeReader compressed;
  compressed.Feed(std::string("\1\0\0\0\0", 5));
  EXPECT_FALSE(compressed.Next());
}

TEST(Wire, Base64KeepsEveryByte) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) {
    EXPECT_EQ(DecodeBase64(EncodeBase64(bytes)).value(), bytes);
    bytes += static_cast<char>(i);
  }
  EXPECT_EQ(EncodeBase64("ab"), "YWI=");
  EXPECT_FALSE(DecodeBase64("a*b"));
}

TEST(ProcessEvents, EndsBecomeExitCodes) {
  const auto code = [](const char* text) {
    return ExitCodeOf(std::get<ProcessEnd>(ParseProcessEvent(text).value()));
  };
  EXPECT_EQ(code(R"({"event":{"end":{"exited":true,"status":"exit status 0"}}})"), 0);
  EXPECT_EQ(code(R"({"event":{"end":{"exitCode":255,"exited":true}}})"), 255);
  EXPECT_EQ(code(R"({"event":{"end":{"exitCode":-1,"exited":false,"status":"signal: killed"}}})"),
            137);
  EXPECT_EQ(code(R"({"event":{"end":{"exitCode":-1,"status":"signal: terminated"}}})"), 143);
  EXPECT_EQ(code(R"x({"event":{"end":{"status":"signal: segmentation fault (core dumped)"}}})x"),
            139);
  EXPECT_EQ(code(R"({"event":{"end":{"exitCode":-1,"status":"signal: signal 34"}}})"), 162);
}

TEST(ProcessEvents, HostileOnesAreErrorsOrNothing) {
  EXPECT_FALSE(ParseProcessEvent("not json"));
  EXPECT_FALSE(ParseProcessEvent(R"({"event":{"data":{"stdout":"***"}}})"));
  for (const char* text : {"{}", R"({"event":7})", R"({"event":{"data":{"stdout":5}}})"}) {
    EXPECT_TRUE(std::holds_alternative<ProcessKeepalive>(ParseProcessEvent(text).value())) << text;
  }
}

TEST(StartErrors, HaveDockersCodes) {
  EXPECT_EQ(ExitCodeOfStartError(Error(ErrorCode::kNotFound, "")), 127);
  EXPECT_EQ(ExitCodeOfStartError(Error(ErrorCode::kPermissionDenied, "")), 126);
  EXPECT_EQ(ExitCodeOfStartError(Error(ErrorCode::kUnauthenticated, "")), 125);
  EXPECT_EQ(ExitCodeOfStartError(Error(ErrorCode::kInvalidArgument, "")), 125);
}

TEST(CopyPlaces, ColonsInPathsHereStayPaths) {
  EXPECT_EQ(ParseCopyPlace("i0:/a").sandbox, "i0");
  EXPECT_EQ(ParseCopyPlace("i0:/a:b").path, "/a:b");
  EXPECT_EQ(ParseCopyPlace("./a:b").sandbox, "");
  EXPECT_EQ(ParseCopyPlace("/a:b").path, "/a:b");
  EXPECT_TRUE(ParseCopyPlace("-").is_stream());
}

TEST(Purge, SharedFoldersAreLeftAlone) {
  for (const char* path :
       {"/", "/var", "/var/lib", "/home", "relative/x", "/tmp/../etc", "/usr/local/"}) {
    EXPECT_FALSE(CheckPurgeable(path)) << path;
  }
  EXPECT_TRUE(CheckPurgeable("/var/lib/space"));
}

TEST(Table, EveryCommandHasHelpWithTwoExamples) {
  for (const Command& command : Commands()) {
    EXPECT_EQ(command.examples.size(), 2U) << command.name;
    EXPECT_FALSE(command.summary.empty()) << command.name;
    EXPECT_NE(HelpText(command).find("Examples:"), std::string::npos);
  }
}

TEST(Keys, OnlyOursFitIntoAHeader) {
  EXPECT_TRUE(LooksLikeKey("e2b_0123456789abcdef"));
  for (const char* wrong : {"", "e2b_", "e2b_xyz", "key", "e2b_00\r\nX: y"}) {
    EXPECT_FALSE(LooksLikeKey(wrong)) << wrong;
  }
}

TEST(ForTerminal, ShowsControlCharactersAsQuestionMarks) {
  EXPECT_EQ(ForTerminal("a\tb\r\nc\n"), "a\tb\nc\n");
  EXPECT_EQ(ForTerminal("\x1b]0;x\x07\x7f\r"), "?]0;x???");
  EXPECT_EQ(ForTerminal("\xc2\x9b"
                        "1m \xc3\xa4 \xc2\xa0"),
            "?1m \xc3\xa4 \xc2\xa0");
  EXPECT_EQ(FormatTable({{"A", "B"}, {"x\ny", "\x1b[2J"}}), "A     B\nx?y   ?[2J\n");
}

TEST(ForeignListener, IsOneWhoIsNeitherRootNorOurselves) {
  const auto row = [](const char* local, const char* state, int user) {
    return std::string("   0: ") + local + " 00000000:0000 " + state +
           " 00000000:00000000 00:00000000 00000000  " + std::to_string(user) +
           "        0 1234 1\n";
  };
  const std::string head = "  sl  local_address rem_address   st tx_queue rx_queue\n";
  const auto foreign = [&](const std::string& rows) {
    return ForeignListener(head + rows, 3000, 1000);
  };
  EXPECT_EQ(foreign(row("0100007F:0BB8", "0A", 1001)), 1001U);
  EXPECT_EQ(foreign(row("00000000:0BB8", "0A", 1001)), 1001U);
  EXPECT_EQ(foreign(row("00000000000000000000000001000000:0BB8", "0A", 7)), 7U);
  EXPECT_EQ(foreign(row("00000000000000000000000000000000:0BB8", "0A", 7)), 7U);
  EXPECT_EQ(foreign(row("0000000000000000FFFF00000100007F:0BB8", "0A", 7)), 7U);
  EXPECT_EQ(foreign(row("0100007F:0BB8", "0A", 0) + row("0100007F:0BB8", "0A", 1001)), 1001U);
  EXPECT_FALSE(foreign(row("0100007F:0BB8", "0A", 0) + row("0100007F:0BB8", "0A", 1000)));
  EXPECT_FALSE(foreign(row("0100007F:0BB9", "0A", 1001)));  // another port
  EXPECT_FALSE(foreign(row("0100007F:0BB8", "01", 1001)));  // a connection
  EXPECT_FALSE(foreign(row("0100000A:0BB8", "0A", 1001)));  // 10.0.0.1
  EXPECT_FALSE(foreign(""));
  EXPECT_FALSE(foreign("x\n:\n0: 0100007F:0BB8 0 0A"));
}

}  // namespace
}  // namespace space::cli
