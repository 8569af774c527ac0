#include "catalog/catalog.h"

#include "catalog/migrations.h"

namespace space {

Result<std::unique_ptr<Catalog>> Catalog::Open(const std::string& path) {
  SPACE_TRY(std::unique_ptr<Database> database, Database::Open(path), "open catalog");
  SPACE_TRY_VOID(Migrate(*database), path);
  return std::unique_ptr<Catalog>(new Catalog(std::move(database)));
}

}  // namespace space
