// Options that `run`, `create`, `exec` and `shell` share, and what they become.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <boost/json/object.hpp>

#include "cli/attach.h"
#include "cli/command.h"

namespace space::cli {

// -e, --env-file, -w, -u, -i, -t, -d.
std::vector<OptionSpec> ProcessOptions();
// -T, --cpus, --memory, --disk, --timeout.
std::vector<OptionSpec> SizeOptions();
std::vector<OptionSpec> operator+(std::vector<OptionSpec> a, const std::vector<OptionSpec>& b);

// "NAME=VALUE", or "NAME" for the value of our own environment (left out when it is not set).
//   errors: kInvalidArgument naming the entry
Result<void> AddVariable(const std::string& entry, std::map<std::string, std::string>& into);
// Docker's form: one entry a line, # comments, no quotes. Errors name file and line.
Result<void> AddVariables(const std::string& text, const std::string& file,
                          std::map<std::string, std::string>& into);

// `command` is the program and its arguments.
Result<AttachRequest> MakeAttachRequest(const Arguments& arguments,
                                        std::vector<std::string> command);

// How long a sandbox made by the command line lives when nobody says.
constexpr int64_t kDefaultLifeSeconds = 3600;

// A whole number of at least 1 and a whole number of seconds of more than 0.
//   errors: kInvalidArgument naming the option ("--count")
Result<int64_t> ReadCount(const std::string& option, const std::string& text);
Result<int64_t> ReadSeconds(const std::string& option, const std::string& text);

// The body of a create request. Sizes are left to the daemon's judgement; only what cannot be read
// is refused here, naming the option.
Result<boost::json::object> MakeCreateBody(const Arguments& arguments);

}  // namespace space::cli
