#include "node/sandbox_size.h"

#include <gtest/gtest.h>

#include "base/units.h"

namespace space {
namespace {

TEST(TemplateReference, ReadsNameTagAndVariant) {
  const auto whole = ParseTemplateReference("Team/Base:V1@2c-1024m-8192d");
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->name_space, "team");
  EXPECT_EQ(whole->name, "base");
  EXPECT_EQ(whole->tag, "v1");
  EXPECT_EQ(whole->size.vcpus, 2);
  EXPECT_EQ(whole->size.memory_mib, 1024);
  EXPECT_EQ(whole->size.disk_mib, 8192);
  const auto part = ParseTemplateReference("base@512m");
  ASSERT_TRUE(part.has_value());
  EXPECT_FALSE(part->size.vcpus.has_value());
  EXPECT_EQ(part->size.memory_mib, 512);
}

TEST(TemplateReference, RefusesWhatItCannotRead) {
  for (const char* text : {"", "@2c", "base@", "base@2", "base@c", "base@2c-2c", "base@2x", ":x",
                           "base:", "ba se", "base@-1c-", "base@99999999999999999999c"}) {
    const auto reference = ParseTemplateReference(text);
    ASSERT_FALSE(reference.has_value()) << text;
    EXPECT_NE(reference.error().message().find("templateID"), std::string::npos);
  }
}

TEST(SandboxSize, ErrorsNameTheField) {
  const SandboxSize defaults{2, 512, 8192};
  const auto error_of = [&](const AskedSize& asked) {
    const auto size = ChooseSize(asked, {}, defaults, GiB(4));
    return size.has_value() ? std::string() : size.error().message();
  };
  EXPECT_EQ(error_of({}), "");
  EXPECT_NE(error_of({.vcpus = 0}).find("cpuCount"), std::string::npos);
  EXPECT_NE(error_of({.vcpus = 33}).find("cpuCount"), std::string::npos);
  EXPECT_NE(error_of({.memory_mib = 0}).find("memoryMB"), std::string::npos);
  EXPECT_NE(error_of({.memory_mib = 79}).find("at least 80"), std::string::npos);
  EXPECT_EQ(error_of({.memory_mib = 80}), "");
  EXPECT_NE(error_of({.memory_mib = 5000}).find("more than this host has"), std::string::npos);
  EXPECT_NE(error_of({.memory_mib = INT64_MAX}).find("memoryMB"), std::string::npos);
  EXPECT_NE(error_of({.disk_mib = 0}).find("diskSizeMB"), std::string::npos);
  const auto size = ChooseSize({.vcpus = 3}, {.vcpus = 4, .memory_mib = 128}, defaults, GiB(4));
  ASSERT_TRUE(size.has_value());
  EXPECT_EQ(size->vcpus, 3U);
  EXPECT_EQ(size->memory_mib, 128U);
  EXPECT_EQ(size->disk_mib, 8192U);
}

TEST(SandboxSize, CheckRoomNamesTheLimit) {
  Config config;
  config.max_sandboxes = 2;
  config.max_memory_bytes = GiB(1);
  const HostUse roomy{GiB(8), GiB(4), GiB(50), 1, 0, MiB(512)};
  const SandboxSize size{1, 512, 1024};
  EXPECT_TRUE(CheckRoom(config, roomy, size).has_value());
  const auto error_of = [&](HostUse use) {
    const auto room = CheckRoom(config, use, size);
    return room.has_value() ? std::string() : room.error().message();
  };
  HostUse use = roomy;
  use.sandboxes = 2;
  EXPECT_NE(error_of(use).find("limits.max_sandboxes"), std::string::npos);
  use = roomy;
  use.sandbox_memory_bytes = MiB(513);
  EXPECT_NE(error_of(use).find("limits.max_memory"), std::string::npos);
  use = roomy;
  use.available_memory_bytes = MiB(10);
  EXPECT_NE(error_of(use).find("limits.min_free_memory"), std::string::npos);
  use = roomy;
  use.starting = 200;  // what those will take is not free
  EXPECT_NE(error_of(use).find("limits.min_free_memory"), std::string::npos);
  use = roomy;
  use.free_disk_bytes = MiB(10);
  EXPECT_NE(error_of(use).find("no disk space"), std::string::npos);
}

TEST(SandboxSize, ReadHostUseSeesThisHost) {
  const auto use = ReadHostUse("/tmp");
  ASSERT_TRUE(use.has_value());
  EXPECT_GT(use->memory_bytes, MiB(64));
  EXPECT_GT(use->available_memory_bytes, 0U);
  EXPECT_LE(use->available_memory_bytes, use->memory_bytes);
}

}  // namespace
}  // namespace space
