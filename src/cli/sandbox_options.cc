#include "cli/sandbox_options.h"

#include <charconv>
#include <cstdlib>
#include <sstream>

#include "base/fd.h"
#include "base/units.h"

namespace space::cli {
namespace {

Result<int64_t> WholeNumber(const std::string& option, const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return Fail(ErrorCode::kInvalidArgument, option + " must be a whole number, not", text);
  }
  return value;
}

Result<int64_t> SizeInMiB(const std::string& option, const std::string& text) {
  SPACE_TRY(const uint64_t bytes, ParseSize(text), option);
  return static_cast<int64_t>(bytes / MiB(1) + (bytes % MiB(1) != 0 ? 1 : 0));
}

}  // namespace

Result<int64_t> ReadSeconds(const std::string& option, const std::string& text) {
  SPACE_TRY(const std::chrono::milliseconds value, ParseDuration(text), option);
  if (value.count() <= 0) {
    return Fail(ErrorCode::kInvalidArgument, option + " must be longer than 0, not", text);
  }
  return (value.count() + 999) / 1000;
}

Result<int64_t> ReadCount(const std::string& option, const std::string& text) {
  SPACE_TRY(const int64_t value, WholeNumber(option, text), "");
  if (value < 1) {
    return Fail(ErrorCode::kInvalidArgument, option + " must be at least 1, not", text);
  }
  return value;
}

std::vector<OptionSpec> operator+(std::vector<OptionSpec> a, const std::vector<OptionSpec>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<OptionSpec> ProcessOptions() {
  return {{"interactive", 'i', "", "pass standard input on even when it is a terminal"},
          {"tty", 't', "", "give the command a terminal"},
          {"env", 'e', "NAME=VALUE", "set a variable; NAME alone takes ours (repeatable)"},
          {"env-file", 0, "FILE", "read variables from a file, one a line (repeatable)"},
          {"workdir", 'w', "DIR", "directory in the sandbox (default: the template's)"},
          {"user", 'u', "NAME", "user in the sandbox (default: root)"},
          {"detach", 'd', "", "leave the command running and return"}};
}

std::vector<OptionSpec> SizeOptions() {
  return {{"template", 'T', "NAME", "template or snapshot that it is made of (default: base)"},
          {"cpus", 0, "COUNT", "virtual CPUs, 1 to 32"},
          {"memory", 0, "SIZE", "memory, such as 512m or 2g"},
          {"disk", 0, "SIZE", "size of the root disk, such as 10g"},
          {"timeout", 0, "DURATION", "time to live, such as 90s or 2h (default: 1h)"}};
}

Result<void> AddVariable(const std::string& entry, std::map<std::string, std::string>& into) {
  const size_t equals = entry.find('=');
  const std::string name = entry.substr(0, equals);
  if (name.empty() || name.find_first_of(" \t") != std::string::npos) {
    return Fail(ErrorCode::kInvalidArgument, "--env must be NAME=VALUE, not", entry);
  }
  if (equals != std::string::npos) {
    into[name] = entry.substr(equals + 1);
    return {};
  }
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets the environment
  if (const char* value = std::getenv(name.c_str())) {
    into[name] = value;
  }
  return {};
}

Result<void> AddVariables(const std::string& text, const std::string& file,
                          std::map<std::string, std::string>& into) {
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (!line.empty() && line.back() == '\r') {
      line.pop_back();
    }
    const size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string::npos || line[begin] == '#') {
      continue;
    }
    SPACE_TRY_VOID(AddVariable(line.substr(begin), into), file + ":" + std::to_string(number));
  }
  return {};
}

Result<AttachRequest> MakeAttachRequest(const Arguments& arguments,
                                        std::vector<std::string> command) {
  AttachRequest request;
  request.wants_input = arguments.Has("interactive");
  request.wants_terminal = arguments.Has("tty");
  request.process.command = std::move(command);
  request.process.directory = arguments.Value("workdir").value_or("");
  request.process.user = arguments.Value("user").value_or("root");
  if (request.process.user.empty() || request.process.user.find(':') != std::string::npos) {
    return Fail(ErrorCode::kInvalidArgument, "--user must be a name, not", request.process.user);
  }
  for (const std::string& file : arguments.Values("env-file")) {
    SPACE_TRY(const std::string text, ReadFile(file), "--env-file");
    SPACE_TRY_VOID(AddVariables(text, file, request.process.environment), "--env-file");
  }
  for (const std::string& entry : arguments.Values("env")) {
    SPACE_TRY_VOID(AddVariable(entry, request.process.environment), "arguments");
  }
  return request;
}

Result<boost::json::object> MakeCreateBody(const Arguments& arguments) {
  boost::json::object body = {{"templateID", arguments.Value("template").value_or("base")},
                              {"timeout", kDefaultLifeSeconds}};
  if (const auto text = arguments.Value("cpus")) {
    SPACE_TRY(const int64_t count, WholeNumber("--cpus", *text), "arguments");
    body["cpuCount"] = count;
  }
  if (const auto text = arguments.Value("memory")) {
    SPACE_TRY(const int64_t size, SizeInMiB("--memory", *text), "arguments");
    body["memoryMB"] = size;
  }
  if (const auto text = arguments.Value("disk")) {
    SPACE_TRY(const int64_t size, SizeInMiB("--disk", *text), "arguments");
    body["diskSizeMB"] = size;
  }
  if (const auto text = arguments.Value("timeout")) {
    SPACE_TRY(const int64_t seconds, ReadSeconds("--timeout", *text), "arguments");
    body["timeout"] = seconds;
  }
  return body;
}

}  // namespace space::cli
