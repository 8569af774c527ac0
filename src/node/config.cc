#include "node/config.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <functional>
#include <sstream>

#include <toml++/toml.h>

#include "base/fd.h"
#include "base/units.h"

namespace space {
namespace {

enum class Kind { kText, kNumber, kFlag };

// In the same file, but for the command `space machine`, which checks it.
constexpr std::string_view kMachineSection = "machine";

// One key: how it is read from text and written as text.
struct Row {
  std::string key;
  std::string description;
  Kind kind;
  bool is_secret;
  std::function<Result<void>(Config&, std::string_view)> set;
  std::function<std::string(const Config&)> get;
};

Row TextRow(std::string key, std::string Config::*field, std::string description) {
  return {std::move(key),
          std::move(description),
          Kind::kText,
          false,
          [field](Config& config, std::string_view text) -> Result<void> {
            config.*field = text;
            return {};
          },
          [field](const Config& config) { return config.*field; }};
}

Row FlagRow(std::string key, bool Config::*field, std::string description) {
  return {std::move(key),
          std::move(description),
          Kind::kFlag,
          false,
          [field](Config& config, std::string_view text) -> Result<void> {
            if (text != "true" && text != "false") {
              return Fail(ErrorCode::kInvalidArgument, "must be true or false, not", text);
            }
            config.*field = text == "true";
            return {};
          },
          [field](const Config& config) { return std::string(config.*field ? "true" : "false"); }};
}

Row NumberRow(std::string key, uint32_t Config::*field, std::pair<uint32_t, uint32_t> range,
              std::string description) {
  return {std::move(key),
          std::move(description),
          Kind::kNumber,
          false,
          [field, range](Config& config, std::string_view text) -> Result<void> {
            uint32_t value = 0;
            const auto [end, error] =
                std::from_chars(text.data(), text.data() + text.size(), value);
            if (error != std::errc() || end != text.data() + text.size() || value < range.first ||
                value > range.second) {
              return Fail(ErrorCode::kInvalidArgument,
                          "must be a number from " + std::to_string(range.first) + " to " +
                              std::to_string(range.second) + ", not",
                          text);
            }
            config.*field = value;
            return {};
          },
          [field](const Config& config) { return std::to_string(config.*field); }};
}

Row SizeRow(std::string key, uint64_t Config::*field, std::string description) {
  return {std::move(key),
          std::move(description),
          Kind::kText,
          false,
          [field](Config& config, std::string_view text) -> Result<void> {
            SPACE_TRY(config.*field, ParseSize(text), "read size");
            return {};
          },
          [field](const Config& config) -> std::string {
            const uint64_t bytes = config.*field;
            if (bytes % MiB(1) == 0 && bytes != 0) {
              return std::to_string(bytes / MiB(1)) + "MiB";
            }
            return bytes % 1024 == 0 && bytes != 0 ? std::to_string(bytes / 1024) + "KiB"
                                                   : std::to_string(bytes);
          }};
}

template <class Duration>
Row DurationRow(std::string key, Duration Config::*field, std::string description) {
  return {std::move(key),
          std::move(description),
          Kind::kText,
          false,
          [field](Config& config, std::string_view text) -> Result<void> {
            SPACE_TRY(const std::chrono::milliseconds value, ParseDuration(text), "read duration");
            if (value.count() <= 0) {
              return Fail(ErrorCode::kInvalidArgument, "must be longer than 0");
            }
            config.*field = std::chrono::duration_cast<Duration>(value);
            return {};
          },
          [field](const Config& config) {
            const auto value = std::chrono::milliseconds(config.*field).count();
            return value % 1000 == 0 ? std::to_string(value / 1000) + "s"
                                     : std::to_string(value) + "ms";
          }};
}

const std::vector<Row>& Rows() {
  static const std::vector<Row> kRows = {
      TextRow("data_dir", &Config::data_dir,
              "Catalog, disks of sandboxes, images. Mode 0700, made when missing."),
      TextRow("run_dir", &Config::run_dir, "Control sockets, pid file and lock. Mode 0711."),
      TextRow("listen", &Config::listen,
              "Address of API and sandbox proxy. One that is not loopback needs insecure_listen."),
      FlagRow("insecure_listen", &Config::insecure_listen,
              "Allow plain HTTP, keys included, on an address that others can reach."),
      TextRow(
          "domain", &Config::domain,
          "Domain given to clients; needs wildcard DNS. Empty: they use the address they came by."),
      TextRow("images_dir", &Config::images_dir,
              "Guest kernel, initramfs and base image. Empty: images in data_dir."),
      TextRow("vmm", &Config::vmm_path, "Program of a sandbox. Empty: space-vmm beside spaced."),
      TextRow("kvm", &Config::kvm_path, "Device through which VMs are made."),
      NumberRow("limits.max_sandboxes", &Config::max_sandboxes, {1, 100'000},
                "Sandboxes at the same time."),
      NumberRow("limits.team_sandboxes", &Config::team_sandboxes, {0, 100'000},
                "Sandboxes of one team at the same time, paused ones not counted. 0: no limit."),
      NumberRow(
          "limits.team_requests", &Config::team_requests, {0, 1'000'000},
          "Requests of one team to the API in a second, in bursts twice as many. 0: no limit."),
      SizeRow("limits.max_memory", &Config::max_memory_bytes,
              "Memory of all sandboxes together. 0: limits.memory_overcommit times the host's."),
      NumberRow("limits.memory_overcommit", &Config::memory_overcommit, {1, 64},
                "How many times the host's memory sandboxes may have (guests seldom use all)."),
      SizeRow("limits.min_free_memory", &Config::min_free_memory_bytes,
              "No sandbox is made when the host has less available."),
      SizeRow("limits.min_free_disk", &Config::min_free_disk_bytes,
              "No sandbox is made when data_dir has less space left."),
      DurationRow("limits.max_timeout", &Config::max_timeout,
                  "Longest time to live that a client may ask for."),
      FlagRow("templates.snapshots", &Config::use_snapshots,
              "Sandboxes are resumed from a snapshot of their booted template. false: each boots."),
      NumberRow("pool.size", &Config::pool_size, {0, 256},
                "VMs kept ready per template and size. 0: none."),
      NumberRow(
          "pool.low", &Config::pool_low, {0, 256},
          "The pool is filled again when fewer than this are ready. 0: whenever one is taken."),
      SizeRow("pool.memory", &Config::pool_memory_bytes,
              "Memory that all pooled VMs together may hold."),
      DurationRow("pool.idle_time", &Config::pool_idle_time,
                  "A pool is emptied when nobody used it for so long; the default size's stays."),
      NumberRow("sandbox.vcpus", &Config::sandbox_vcpus, {1, 32}, "vCPUs when nobody says."),
      SizeRow("sandbox.memory", &Config::sandbox_memory_bytes, "Memory when nobody says."),
      SizeRow("sandbox.disk", &Config::sandbox_disk_bytes,
              "Size of the root disk when nobody says."),
      DurationRow("sandbox.hello_timeout", &Config::hello_timeout,
                  "From start of the VM to the agent's hello. Emulated hosts are slow."),
      DurationRow("sandbox.kill_grace", &Config::kill_grace,
                  "From asking the VMM to end to killing it."),
      DurationRow("sandbox.dead_retention", &Config::dead_retention,
                  "How long dead sandboxes stay listed with their reason."),
      DurationRow(
          "sandbox.metrics_interval", &Config::metrics_interval,
          "How often running sandboxes are asked what they use; seldomer where that is slow."),
      DurationRow("sandbox.metrics_retention", &Config::metrics_retention,
                  "How long the answers are kept."),
      SizeRow("sandbox.serial_log", &Config::serial_log_bytes,
              "Kept of the guest's console. 0: no serial port."),
      SizeRow("sandbox.vmm_log", &Config::vmm_log_bytes, "Kept of the VMM's own log."),
      TextRow("sandbox.command_line", &Config::command_line,
              "Appended to the guest kernel's command line."),
  };
  return kRows;
}

const Row* FindRow(std::string_view key) {
  for (const Row& row : Rows()) {
    if (row.key == key) {
      return &row;
    }
  }
  return nullptr;
}

Result<void> Set(Config& config, std::string_view key, std::string_view text,
                 const std::string& source) {
  const Row* row = FindRow(key);
  if (row == nullptr) {
    return Fail(ErrorCode::kInvalidArgument, source + ": unknown key", key);
  }
  SPACE_TRY_VOID(row->set(config, text), source + ": " + std::string(key));
  return {};
}

Result<std::string> NodeText(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) {
    return *text;
  }
  if (const auto number = node.value_exact<int64_t>()) {
    return std::to_string(*number);
  }
  if (const auto flag = node.value_exact<bool>()) {
    return std::string(*flag ? "true" : "false");
  }
  return Fail(ErrorCode::kInvalidArgument, "must be a text, a whole number or true or false");
}

Result<void> ApplyTable(Config& config, const toml::table& table, const std::string& prefix,
                        const std::string& file) {
  for (const auto& [name, node] : table) {
    const std::string key = prefix + std::string(name.str());
    if (key == kMachineSection) {
      continue;
    }
    if (const toml::table* inner = node.as_table(); inner != nullptr && prefix.empty()) {
      SPACE_TRY_VOID(ApplyTable(config, *inner, key + ".", file), "read configuration");
      continue;
    }
    if (FindRow(key) == nullptr) {
      return Fail(ErrorCode::kInvalidArgument, file + ": unknown key", key);
    }
    SPACE_TRY(const std::string text, NodeText(node), file + ": " + key);
    SPACE_TRY_VOID(Set(config, key, text, file), "read configuration");
  }
  return {};
}

Result<void> ApplyFile(Config& config, const ConfigSources& sources) {
  if (sources.file.empty()) {
    return {};
  }
  const auto text = ReadFile(sources.file);
  if (!text) {
    if (text.error().code() == ErrorCode::kNotFound && !sources.file_must_exist) {
      return {};
    }
    return Fail(Error(text.error()).While("read configuration"));
  }
  try {
    return ApplyTable(config, toml::parse(*text, sources.file), "", sources.file);
  } catch (const toml::parse_error& error) {
    std::ostringstream place;
    place << sources.file << ":" << error.source().begin.line << ": " << error.description();
    return Fail(ErrorCode::kInvalidArgument, place.str());
  }
}

Result<void> Check(const Config& config) {
  for (const auto& [key, path] :
       {std::pair("data_dir", config.data_dir), std::pair("run_dir", config.run_dir)}) {
    if (!path.starts_with('/')) {
      return Fail(ErrorCode::kInvalidArgument, std::string(key) + " must be an absolute path, not",
                  path);
    }
  }
  // A control socket's path is run_dir/vm/<21 characters>.sock in 107 bytes.
  if (config.run_dir.size() > 70) {
    return Fail(ErrorCode::kInvalidArgument, "run_dir is longer than 70 bytes", config.run_dir);
  }
  const bool is_loopback = config.listen.starts_with("127.") ||
                           config.listen.starts_with("[::1]:") ||
                           config.listen.starts_with("localhost:");
  if (!is_loopback && !config.insecure_listen) {
    return Fail(ErrorCode::kInvalidArgument,
                "listen: keys would travel in the clear; set insecure_listen to allow it, or use a "
                "loopback address instead of",
                config.listen);
  }
  return {};
}

}  // namespace

Config::Config()
    : min_free_memory_bytes(MiB(128)),
      min_free_disk_bytes(GiB(1)),
      pool_memory_bytes(GiB(1)),
      sandbox_memory_bytes(MiB(512)),
      sandbox_disk_bytes(GiB(8)),
      serial_log_bytes(KiB(256)),
      vmm_log_bytes(KiB(256)) {}

Result<Config> LoadConfig(const ConfigSources& sources) {
  Config config;
  SPACE_TRY_VOID(ApplyFile(config, sources), "load configuration");
  for (const Row& row : Rows()) {
    const auto found = sources.environment.find(EnvironmentNameOf(row.key));
    if (found != sources.environment.end()) {
      SPACE_TRY_VOID(Set(config, row.key, found->second, found->first), "load configuration");
    }
  }
  for (const auto& [key, value] : sources.flags) {
    SPACE_TRY_VOID(Set(config, key, value, "command line"), "load configuration");
  }
  SPACE_TRY_VOID(Check(config), "load configuration");
  if (config.images_dir.empty()) {
    config.images_dir = config.data_dir + "/images";
  }
  return config;
}

std::string PrintConfig(const Config& config) {
  std::string out;
  std::string section;
  for (const Row& row : Rows()) {
    const size_t dot = row.key.find('.');
    const std::string row_section = dot == std::string::npos ? "" : row.key.substr(0, dot);
    if (row_section != section) {
      section = row_section;
      out += "\n[" + section + "]\n";
    }
    const std::string name = dot == std::string::npos ? row.key : row.key.substr(dot + 1);
    std::string value = row.get(config);
    if (row.is_secret && !value.empty()) {
      value = "***";
    }
    if (row.kind == Kind::kText) {
      std::ostringstream quoted;
      quoted << toml::value<std::string>(value);
      value = quoted.str();
    }
    out += "# " + row.description + "\n" + name + " = " + value + "\n";
  }
  return out;
}

std::vector<ConfigKeyHelp> ConfigKeys() {
  std::vector<ConfigKeyHelp> keys;
  for (const Row& row : Rows()) {
    keys.push_back({row.key, row.description});
  }
  return keys;
}

std::string EnvironmentNameOf(std::string_view key) {
  std::string name = "SPACE_" + std::string(key);
  std::transform(name.begin(), name.end(), name.begin(), [](char letter) {
    return letter == '.' ? '_'
                         : static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  });
  return name;
}

}  // namespace space
