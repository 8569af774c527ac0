#include "catalog/template_store.h"

namespace space {
namespace {

Template ReadTemplate(const Statement& row) {
  Template entry;
  entry.id = row.Text(0);
  entry.name = row.Text(1);
  entry.vcpus = static_cast<uint32_t>(row.Number(2));
  entry.memory_mib = static_cast<uint64_t>(row.Number(3));
  entry.disk_mib = static_cast<uint64_t>(row.Number(4));
  entry.image_path = row.Text(5);
  entry.image_digest = row.Text(6);
  entry.created_at = row.Number(7);
  return entry;
}

}  // namespace

Result<void> TemplateStore::Put(const Template& entry) {
  SPACE_TRY(Statement insert,
            database_.Prepare("INSERT OR REPLACE INTO templates (id, name, vcpus, memory_mib, "
                              "disk_mib, image_path, image_digest, created_at) "
                              "VALUES (?,?,?,?,?,?,?,?)"),
            "store template");
  insert.Bind(1, entry.id).Bind(2, entry.name).Bind(3, static_cast<int64_t>(entry.vcpus));
  insert.Bind(4, static_cast<int64_t>(entry.memory_mib));
  insert.Bind(5, static_cast<int64_t>(entry.disk_mib)).Bind(6, entry.image_path);
  insert.Bind(7, entry.image_digest).Bind(8, entry.created_at);
  SPACE_TRY_VOID(insert.Run(), "store template " + entry.id);
  return {};
}

Result<std::optional<Template>> TemplateStore::Find(std::string_view id_or_name) {
  SPACE_TRY(Statement select,
            database_.Prepare("SELECT id, name, vcpus, memory_mib, disk_mib, image_path, "
                              "image_digest, created_at FROM templates WHERE id=?1 OR name=?1"),
            "find template");
  select.Bind(1, id_or_name);
  SPACE_TRY(const bool has_row, select.Step(), "find template");
  if (!has_row) {
    return std::optional<Template>();
  }
  return ReadTemplate(select);
}

Result<std::vector<Template>> TemplateStore::List() {
  SPACE_TRY(Statement select,
            database_.Prepare("SELECT id, name, vcpus, memory_mib, disk_mib, image_path, "
                              "image_digest, created_at FROM templates ORDER BY name"),
            "list templates");
  std::vector<Template> entries;
  for (;;) {
    SPACE_TRY(const bool has_row, select.Step(), "list templates");
    if (!has_row) {
      return entries;
    }
    entries.push_back(ReadTemplate(select));
  }
}

}  // namespace space
