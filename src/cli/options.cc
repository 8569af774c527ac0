#include "cli/options.h"

namespace space::cli {
namespace {

const OptionSpec* FindByName(const std::vector<OptionSpec>& options, std::string_view name) {
  for (const OptionSpec& option : options) {
    if (option.name == name) {
      return &option;
    }
  }
  return nullptr;
}

const OptionSpec* FindByLetter(const std::vector<OptionSpec>& options, char letter) {
  for (const OptionSpec& option : options) {
    if (option.letter != 0 && option.letter == letter) {
      return &option;
    }
  }
  return nullptr;
}

// One given option: which one, and its value if that was in the same word.
struct Given {
  const OptionSpec* option = nullptr;
  std::optional<std::string> value;
};

tl::unexpected<Error> Unknown(const std::string& word) {
  return Fail(ErrorCode::kInvalidArgument, "unknown option " + word + "; see --help");
}

// "--env=A=b" or "--env".
Result<std::vector<Given>> SplitLong(const std::vector<OptionSpec>& options,
                                     const std::string& word) {
  const size_t equals = word.find('=');
  const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
  const OptionSpec* option = FindByName(options, name);
  if (option == nullptr) {
    return Unknown("--" + name);
  }
  Given given{option, std::nullopt};
  if (equals != std::string::npos) {
    if (option->value_name.empty()) {
      return Fail(ErrorCode::kInvalidArgument, "option --" + name + " takes no value");
    }
    given.value = word.substr(equals + 1);
  }
  return std::vector<Given>{given};
}

// "-it", "-eA=b", "-e".
Result<std::vector<Given>> SplitShort(const std::vector<OptionSpec>& options,
                                      const std::string& word) {
  std::vector<Given> all;
  for (size_t i = 1; i < word.size(); ++i) {
    const OptionSpec* option = FindByLetter(options, word[i]);
    if (option == nullptr) {
      return Unknown(std::string("-") + word[i]);
    }
    Given given{option, std::nullopt};
    if (!option->value_name.empty() && i + 1 < word.size()) {
      given.value = word.substr(i + 1);
      i = word.size();
    }
    all.push_back(given);
  }
  return all;
}

}  // namespace

std::optional<std::string> Arguments::Value(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) {
    return std::nullopt;
  }
  return found->second.back();
}

std::vector<std::string> Arguments::Values(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? std::vector<std::string>{} : found->second;
}

Result<Arguments> ParseArguments(const std::vector<OptionSpec>& options, size_t words_before_rest,
                                 const std::vector<std::string>& input) {
  Arguments result;
  bool are_over = false;
  for (size_t i = 0; i < input.size(); ++i) {
    const std::string& word = input[i];
    if (are_over || word.size() < 2 || word.front() != '-') {
      result.words_.push_back(word);
      are_over = are_over || result.words_.size() >= words_before_rest;
      continue;
    }
    if (word == "--") {
      are_over = true;
      continue;
    }
    SPACE_TRY(const std::vector<Given> all,
              word[1] == '-' ? SplitLong(options, word) : SplitShort(options, word), "arguments");
    for (const Given& given : all) {
      std::string value = given.value.value_or("");
      if (!given.option->value_name.empty() && !given.value) {
        if (i + 1 >= input.size()) {
          return Fail(ErrorCode::kInvalidArgument, "option --" + std::string(given.option->name) +
                                                       " needs " +
                                                       std::string(given.option->value_name));
        }
        value = input[++i];
      }
      result.values_[std::string(given.option->name)].push_back(std::move(value));
    }
  }
  return result;
}

}  // namespace space::cli
