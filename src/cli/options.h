// Options of one command, docker style: options come before the first other word where the rest is
// a command for the guest, anywhere else otherwise. An unknown option is an error, never a word.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace space::cli {

struct OptionSpec {
  std::string_view name;        // "env", given as --env
  char letter = 0;              // 'e', given as -e; 0 for none
  std::string_view value_name;  // "NAME=VALUE"; empty for a switch
  std::string_view help;
};

class Arguments {
 public:
  bool Has(std::string_view name) const { return values_.contains(name); }
  std::optional<std::string> Value(std::string_view name) const;  // the last one given
  std::vector<std::string> Values(std::string_view name) const;
  const std::vector<std::string>& words() const { return words_; }

 private:
  friend Result<Arguments> ParseArguments(const std::vector<OptionSpec>&, size_t,
                                          const std::vector<std::string>&);
  std::map<std::string, std::vector<std::string>, std::less<>> values_;
  std::vector<std::string> words_;
};

constexpr size_t kOptionsAnywhere = static_cast<size_t>(-1);

// After `words_before_rest` words no option is looked for any more (`run`: 1, the first word of the
// command; `exec`: 2, the sandbox and the command). "--" ends the options too.
//   errors: kInvalidArgument, naming the option
Result<Arguments> ParseArguments(const std::vector<OptionSpec>& options, size_t words_before_rest,
                                 const std::vector<std::string>& input);

}  // namespace space::cli
