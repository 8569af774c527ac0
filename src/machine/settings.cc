#include "machine/settings.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <sstream>

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include "base/fd.h"
#include "base/units.h"

namespace space::machine {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

class Reader {
 public:
  Reader(const toml::table& table, std::string path) : table_(table), path_(std::move(path)) {}

  Result<void> Text(std::string_view key, std::string& into) const {
    const auto node = table_.at_path(key);
    if (!node) {
      return {};
    }
    const auto value = node.value_exact<std::string>();
    if (!value || value->empty()) {
      return Wrong(key, "must be a text that is not empty");
    }
    into = *value;
    return {};
  }

  Result<void> Size(std::string_view key, uint64_t& into, uint64_t lowest) const {
    const auto node = table_.at_path(key);
    if (!node) {
      return {};
    }
    if (const auto number = node.value_exact<int64_t>(); number && *number >= 0) {
      into = static_cast<uint64_t>(*number);
    } else if (const auto text = node.value_exact<std::string>()) {
      SPACE_TRY(into, ParseSize(*text), path_ + ": " + std::string(key));
    } else {
      return Wrong(key, "must be a size such as \"4GiB\"");
    }
    if (into < lowest) {
      return Wrong(key, "must be at least " + FormatSize(lowest));
    }
    return {};
  }

  Result<void> Count(std::string_view key, uint32_t& into, uint32_t lowest,
                     uint32_t highest) const {
    const auto node = table_.at_path(key);
    if (!node) {
      return {};
    }
    const auto number = node.value_exact<int64_t>();
    if (!number || *number < lowest || *number > highest) {
      return Wrong(key, "must be a number from " + std::to_string(lowest) + " to " +
                            std::to_string(highest));
    }
    into = static_cast<uint32_t>(*number);
    return {};
  }

  Result<void> Texts(std::string_view key, std::vector<std::string>& into) const {
    const auto node = table_.at_path(key);
    if (!node) {
      return {};
    }
    const toml::array* array = node.as_array();
    if (array == nullptr) {
      return Wrong(key, "must be a list of texts");
    }
    for (const toml::node& element : *array) {
      const auto text = element.value_exact<std::string>();
      if (!text) {
        return Wrong(key, "must be a list of texts");
      }
      into.push_back(*text);
    }
    return {};
  }

  // [machine] is ours alone, so a misspelt key there is found here.
  Result<void> OnlyKnown(std::string_view section,
                         std::initializer_list<std::string_view> known) const {
    const toml::table* inner = table_[section].as_table();
    if (inner == nullptr) {
      return table_.contains(section) ? Wrong(section, "must be a table") : Result<void>{};
    }
    for (const auto& [key, node] : *inner) {
      bool is_known = false;
      for (const std::string_view name : known) {
        is_known = is_known || key.str() == name;
      }
      if (!is_known) {
        return Wrong(std::string(section) + "." + std::string(key.str()), "is not a known key");
      }
    }
    return {};
  }

 private:
  Result<void> Wrong(std::string_view key, const std::string& what) const {
    return Fail(ErrorCode::kInvalidArgument, path_ + ": " + std::string(key) + " " + what);
  }

  const toml::table& table_;
  std::string path_;
};

Result<void> ReadMachine(const Reader& reader, MachineSettings& into) {
  SPACE_TRY_VOID(
      reader.OnlyKnown("machine", {"mode", "memory", "cpus", "disk", "qemu", "extra_files"}),
      "read configuration");
  std::string mode(ModeName(into.mode));
  SPACE_TRY_VOID(reader.Text("machine.mode", mode), "read configuration");
  SPACE_TRY(into.mode, ParseMode(mode), "read configuration: machine.mode");
  SPACE_TRY_VOID(reader.Size("machine.memory", into.memory_bytes, MiB(512)), "read configuration");
  SPACE_TRY_VOID(reader.Count("machine.cpus", into.cpus, 1, 64), "read configuration");
  SPACE_TRY_VOID(reader.Size("machine.disk", into.disk_bytes, GiB(1)), "read configuration");
  SPACE_TRY_VOID(reader.Text("machine.qemu", into.qemu), "read configuration");
  SPACE_TRY_VOID(reader.Texts("machine.extra_files", into.extra_files), "read configuration");
  return {};
}

}  // namespace

Result<Mode> ParseMode(std::string_view text) {
  for (const Mode mode : {Mode::kAuto, Mode::kOn, Mode::kOff}) {
    if (text == ModeName(mode)) {
      return mode;
    }
  }
  return Fail(ErrorCode::kInvalidArgument, "must be auto, on or off, not", text);
}

std::string_view ModeName(Mode mode) {
  switch (mode) {
    case Mode::kAuto:
      return "auto";
    case Mode::kOn:
      return "on";
    case Mode::kOff:
      return "off";
  }
  return "auto";
}

Result<HostPort> ParseHostPort(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) {
    return Fail(ErrorCode::kInvalidArgument, "address must be HOST:PORT, not", text);
  }
  HostPort result;
  std::string_view host = text.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  const std::string_view port = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), result.port);
  if (host.empty() || error != std::errc() || end != port.data() + port.size() ||
      result.port == 0) {
    return Fail(ErrorCode::kInvalidArgument, "address must be HOST:PORT, not", text);
  }
  result.host = host;
  return result;
}

Result<Settings> ParseSettings(std::string text, const std::string& path) {
  Settings settings;
  settings.path = path;
  settings.is_from_file = true;
  const toml::parse_result parsed = toml::parse(text, path);
  if (!parsed) {
    std::ostringstream where;
    where << path << ":" << parsed.error().source().begin.line << ": "
          << parsed.error().description();
    return Fail(ErrorCode::kInvalidArgument, where.str());
  }
  const Reader reader(parsed.table(), path);
  std::string listen = "127.0.0.1:3000";
  SPACE_TRY_VOID(reader.Text("data_dir", settings.data_dir), "read configuration");
  settings.images_dir = settings.data_dir + "/images";
  SPACE_TRY_VOID(reader.Text("run_dir", settings.run_dir), "read configuration");
  SPACE_TRY_VOID(reader.Text("images_dir", settings.images_dir), "read configuration");
  SPACE_TRY_VOID(reader.Text("listen", listen), "read configuration");
  SPACE_TRY(HostPort address, ParseHostPort(listen), "read configuration: " + path + ": listen");
  settings.listen_host = std::move(address.host);
  settings.listen_port = address.port;
  SPACE_TRY_VOID(ReadMachine(reader, settings.machine), "machine");
  settings.text = std::move(text);
  return settings;
}

Result<Settings> LoadSettings(const std::string& path) {
  std::string chosen = path;
  if (chosen.empty()) {
    const char* from_environment =
        std::getenv("SPACE_CONFIG");  // NOLINT(concurrency-mt-unsafe): at start
    chosen = from_environment == nullptr ? "" : from_environment;
  }
  if (chosen.empty()) {
    Settings defaults;
    if (::access(defaults.path.c_str(), F_OK) != 0) {
      return defaults;
    }
    chosen = defaults.path;
  }
  SPACE_TRY(std::string text, ReadFile(chosen, kMaxFileBytes), "read configuration");
  return ParseSettings(std::move(text), chosen);
}

namespace {

Result<toml::table> TableForDaemon(const Settings& settings) {
  const toml::parse_result parsed = toml::parse(settings.text, settings.path);
  if (!parsed) {
    return Fail(ErrorCode::kInvalidArgument, "configuration cannot be read", settings.path);
  }
  toml::table table = parsed.table();
  table.erase("machine");
  return table;
}

std::string TextOf(const toml::table& table) {
  std::ostringstream out;
  out << table << "\n";
  return out.str();
}

}  // namespace

Result<std::string> DaemonConfig(const Settings& settings) {
  SPACE_TRY(const toml::table table, TableForDaemon(settings), "daemon");
  return TextOf(table);
}

Result<std::string> InnerConfig(const Settings& settings) {
  SPACE_TRY(toml::table table, TableForDaemon(settings), "daemon in the machine");
  table.insert_or_assign("data_dir", "/var/lib/space");
  table.insert_or_assign("run_dir", "/run/space");
  table.insert_or_assign("images_dir", "/opt/space-images");
  // QEMU forwards 127.0.0.1 of the host to this address; nothing else reaches it.
  table.insert_or_assign("listen", "10.0.2.15:3000");
  table.insert_or_assign("insecure_listen", true);
  return TextOf(table);
}

}  // namespace space::machine
