// Heads of HTTP/1.1 messages, as values. What is here has passed the strict check of head_check.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace space::http {

struct Header {
  std::string name;
  std::string value;
};

// Order and case as received; look-ups ignore case.
class Headers {
 public:
  Headers() = default;
  Headers(std::initializer_list<Header> headers) : all_(headers) {}
  std::optional<std::string_view> Find(std::string_view name) const;  // the first one
  void Add(std::string name, std::string value) {
    all_.push_back({std::move(name), std::move(value)});
  }
  void Set(std::string name, std::string value);  // replaces all of that name
  void Remove(std::string_view name);
  const std::vector<Header>& all() const { return all_; }

 private:
  std::vector<Header> all_;
};

struct RequestHead {
  std::string method;
  std::string target;  // raw, origin-form: "/a%2Fb?c=d"
  Headers headers;
};

struct ResponseHead {
  int status = 200;
  Headers headers;
};

// The raw target split: path segments are decoded after splitting at '/', so "%2F" stays inside
// one.
struct Target {
  std::string path;                   // raw path, before decoding
  std::vector<std::string> segments;  // decoded; "/" gives none
  std::vector<Header> query;          // decoded, in order
  std::optional<std::string_view> Query(std::string_view name) const;
};
// kInvalidArgument for broken percent escapes and NUL.
Result<Target> ParseTarget(std::string_view raw);
Result<std::string> PercentDecode(std::string_view text, bool plus_is_space);
std::string PercentEncode(std::string_view text);  // all but unreserved (RFC 3986, 2.3)

std::string_view ReasonPhrase(int status);
bool EqualsIgnoringCase(std::string_view a, std::string_view b);

}  // namespace space::http
