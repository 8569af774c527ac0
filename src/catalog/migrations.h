// The catalog's tables, as the list of steps that made them.
#pragma once

#include "base/result.h"
#include "catalog/database.h"

namespace space {

// Brings the tables to the newest version; each step is one transaction and is done once. A step
// that has been released is never edited: append a new one.
//   errors: kUnimplemented when the file was written by a newer daemon
Result<void> Migrate(Database& database);
int NewestSchemaVersion();

}  // namespace space
