#include "node/config.h"

#include <fstream>

#include <gtest/gtest.h>

namespace space {
namespace {

std::string WriteFile(const std::string& text) {
  const std::string path = testing::TempDir() + "config_test.toml";
  std::ofstream(path) << text;
  return path;
}

TEST(Config, FlagsBeatEnvironmentBeatsFile) {
  ConfigSources sources;
  sources.file = WriteFile(
      "domain = 'file'\n[machine]\nmemory = '3GiB'\n[limits]\nmax_sandboxes = 1\n[sandbox]\nmemory "
      "= '1GiB'\n");
  sources.environment = {{"SPACE_LIMITS_MAX_SANDBOXES", "2"},
                         {"SPACE_DOMAIN", "environment"},
                         {"SPACE_API_KEY", "not ours"}};
  sources.flags = {{"limits.max_sandboxes", "3"}};
  const auto config = LoadConfig(sources);
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(config->max_sandboxes, 3U);
  EXPECT_EQ(config->domain, "environment");
  EXPECT_EQ(config->sandbox_memory_bytes, 1ULL << 30);
  EXPECT_EQ(config->images_dir, "/var/lib/space/images");
}

TEST(Config, ErrorsNameFileKeyAndValue) {
  ConfigSources sources;
  for (const auto& [text, wanted] :
       {std::pair("colour = 1", "unknown key: colour"),
        std::pair("[sandbox]\nvcpu = 1", "unknown key: sandbox.vcpu"),
        std::pair("[sandbox]\nvcpus = 33", "sandbox.vcpus"), std::pair("listen = [1]", "listen"),
        std::pair("a = \n", "config_test.toml:1"), std::pair("listen = '0.0.0.0:80'", "0.0.0.0:80"),
        std::pair("data_dir = 'x'", "data_dir"), std::pair("[a.b]\nc = 1", "a.b")}) {
    sources.file = WriteFile(text);
    const auto config = LoadConfig(sources);
    ASSERT_FALSE(config.has_value()) << text;
    EXPECT_NE(config.error().message().find(wanted), std::string::npos) << config.error().message();
  }
  sources.file = "/nonexistent/config.toml";
  EXPECT_TRUE(LoadConfig(sources).has_value());
  sources.file_must_exist = true;
  EXPECT_FALSE(LoadConfig(sources).has_value());
}

TEST(Config, WhatIsPrintedReadsBackTheSame) {
  ConfigSources sources;
  sources.flags = {{"insecure_listen", "true"},
                   {"listen", "0.0.0.0:80"},
                   {"sandbox.hello_timeout", "1500ms"},
                   {"sandbox.serial_log", "0"},
                   {"sandbox.command_line", "a=\"b\" \\"}};
  const auto config = LoadConfig(sources);
  ASSERT_TRUE(config.has_value()) << config.error().message();
  ConfigSources again;
  again.file = WriteFile(PrintConfig(*config));
  const auto read = LoadConfig(again);
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(PrintConfig(*read), PrintConfig(*config));
  EXPECT_EQ(read->hello_timeout.count(), 1500);
  EXPECT_EQ(read->command_line, config->command_line);
}

}  // namespace
}  // namespace space
