#include "api/json_fields.h"

#include <cmath>

namespace space {

const json::value* JsonFields::Find(std::string_view name) const {
  const json::value* value = object_.if_contains({name.data(), name.size()});
  return value == nullptr || value->is_null() ? nullptr : value;
}

tl::unexpected<Error> JsonFields::Wrong(std::string_view name, std::string_view wanted) const {
  return Fail(ErrorCode::kInvalidArgument,
              "validation error: " + path_ + std::string(name) + " must be " + std::string(wanted));
}

Result<std::optional<std::string>> JsonFields::Text(std::string_view name) const {
  const json::value* value = Find(name);
  if (value == nullptr) {
    return std::optional<std::string>();
  }
  if (!value->is_string()) {
    return Wrong(name, "a string");
  }
  return std::optional(std::string(value->get_string()));
}

Result<std::optional<int64_t>> JsonFields::Number(std::string_view name) const {
  const json::value* value = Find(name);
  if (value == nullptr) {
    return std::optional<int64_t>();
  }
  if (value->is_int64()) {
    return std::optional(value->get_int64());
  }
  // 300.0 is what some clients make of 300; anything else with a fraction, or too large, is
  // refused.
  constexpr double kExact = 1e15;
  if (value->is_double() && std::abs(value->get_double()) < kExact &&
      std::trunc(value->get_double()) == value->get_double()) {
    return std::optional(static_cast<int64_t>(value->get_double()));
  }
  return Wrong(name, "a whole number");
}

Result<std::optional<bool>> JsonFields::Flag(std::string_view name) const {
  const json::value* value = Find(name);
  if (value == nullptr) {
    return std::optional<bool>();
  }
  if (!value->is_bool()) {
    return Wrong(name, "true or false");
  }
  return std::optional(value->get_bool());
}

Result<TextMap> JsonFields::Map(std::string_view name) const {
  SPACE_TRY(const json::object* object, Object(name), "");
  TextMap map;
  if (object == nullptr) {
    return map;
  }
  if (object->size() > kMaxMapEntries) {
    return Wrong(name, "smaller: it has more than 1000 entries");
  }
  for (const auto& [key, value] : *object) {
    if (!value.is_string()) {
      return Wrong(name, "an object of strings");
    }
    map.emplace(std::string(key), std::string(value.get_string()));
  }
  return map;
}

Result<std::vector<std::string>> JsonFields::Texts(std::string_view name) const {
  const json::value* value = Find(name);
  std::vector<std::string> texts;
  if (value == nullptr) {
    return texts;
  }
  if (!value->is_array() || value->get_array().size() > kMaxMapEntries) {
    return Wrong(name, "a list of at most 1000 strings");
  }
  for (const json::value& entry : value->get_array()) {
    if (!entry.is_string()) {
      return Wrong(name, "a list of strings");
    }
    texts.emplace_back(entry.get_string());
  }
  return texts;
}

Result<const json::object*> JsonFields::Object(std::string_view name) const {
  const json::value* value = Find(name);
  if (value != nullptr && !value->is_object()) {
    return Wrong(name, "an object");
  }
  return value == nullptr ? nullptr : &value->get_object();
}

bool JsonFields::IsGiven(std::string_view name) const {
  const json::value* value = Find(name);
  if (value == nullptr) {
    return false;
  }
  if (const json::array* list = value->if_array()) {
    return !list->empty();
  }
  if (const json::object* object = value->if_object()) {
    return !object->empty();
  }
  return !value->is_bool() || value->get_bool();
}

}  // namespace space
