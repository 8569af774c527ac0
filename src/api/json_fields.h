// Typed access to the fields of a request's JSON object. Absent and null are the same; unknown
// fields are ignored, as E2B clients send more than we know. Errors name the field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "catalog/json.h"

namespace space {

class JsonFields {
 public:
  // The object must outlive this. `path` goes before the names in messages: "network.".
  explicit JsonFields(const json::object& object, std::string path = "")
      : object_(object), path_(std::move(path)) {}

  Result<std::optional<std::string>> Text(std::string_view name) const;
  Result<std::optional<int64_t>> Number(std::string_view name) const;
  Result<std::optional<bool>> Flag(std::string_view name) const;
  // At most `kMaxMapEntries`; empty when absent.
  Result<TextMap> Map(std::string_view name) const;
  Result<std::vector<std::string>> Texts(std::string_view name) const;
  Result<const json::object*> Object(std::string_view name) const;  // null when absent
  // There, not null, not an empty list or object, not false.
  bool IsGiven(std::string_view name) const;

  static constexpr size_t kMaxMapEntries = 1000;

 private:
  const json::value* Find(std::string_view name) const;
  tl::unexpected<Error> Wrong(std::string_view name, std::string_view wanted) const;
  const json::object& object_;
  std::string path_;
};

}  // namespace space
