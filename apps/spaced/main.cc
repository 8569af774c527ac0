// spaced: the daemon. Parses, loads the configuration, runs; everything else is in
// src/api/daemon.h.
#include <unistd.h>

#include <cstdio>
#include <map>
#include <string>

#include <CLI/CLI.hpp>

#include "api/api.h"
#include "api/daemon.h"
#include "base/log.h"
#include "node/config.h"

namespace {

constexpr const char* kDefaultFile = "/etc/space/config.toml";

std::map<std::string, std::string> Environment() {
  std::map<std::string, std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) {
      all[text.substr(0, equals)] = text.substr(equals + 1);
    }
  }
  return all;
}

// limits.max_sandboxes -> --limits-max-sandboxes
std::string FlagOf(std::string key) {
  for (char& letter : key) {
    letter = letter == '.' || letter == '_' ? '-' : letter;
  }
  return "--" + key;
}

int Main(int argc, char** argv) {
  CLI::App app("spaced: API and life cycle of SPACE sandboxes on this machine");
  space::ConfigSources sources;
  bool print_config = false;
  app.add_option("--config", sources.file,
                 std::string("configuration file, default ") + kDefaultFile);
  app.add_flag("--print-config", print_config, "print the effective configuration and exit");
  app.set_version_flag("--version", std::string(space::kSpaceVersion));
  std::map<std::string, std::string> values;
  for (const space::ConfigKeyHelp& key : space::ConfigKeys()) {
    app.add_option(FlagOf(key.key), values[key.key], key.description);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  sources.file_must_exist = !sources.file.empty();
  if (sources.file.empty()) {
    sources.file = kDefaultFile;
  }
  for (const auto& [key, value] : values) {
    if (app.count(FlagOf(key)) > 0) {
      sources.flags.emplace_back(key, value);
    }
  }
  sources.environment = Environment();
  const auto config = space::LoadConfig(sources);
  if (!config) {
    std::fprintf(stderr, "spaced: %s\n", config.error().message().c_str());
    return 2;
  }
  if (print_config) {
    std::fputs(space::PrintConfig(*config).c_str(), stdout);
    return 0;
  }
  space::log::Configure("spaced", space::log::Level::kInfo);
  const auto outcome = space::RunDaemon(*config);
  if (!outcome) {
    std::fprintf(stderr, "spaced: %s\n", outcome.error().message().c_str());
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "spaced: internal error: %s\n", error.what());
    return 1;
  }
}
