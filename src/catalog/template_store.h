// The table of templates.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "catalog/database.h"
#include "catalog/records.h"

namespace space {

class TemplateStore {
 public:
  explicit TemplateStore(Database& database) : database_(database) {}

  // Inserts it or replaces the one with this id.
  Result<void> Put(const Template& entry);
  // By id or by name; names are lower case.
  Result<std::optional<Template>> Find(std::string_view id_or_name);
  Result<std::vector<Template>> List();

 private:
  Database& database_;
};

}  // namespace space
