#include "node/images.h"

#include "base/units.h"
#include "catalog/json.h"

namespace space {
namespace {

Result<UniqueFd> OpenImage(const std::string& path) {
  auto fd = OpenReadOnly(path);
  if (!fd && fd.error().code() == ErrorCode::kNotFound) {
    return Fail(ErrorCode::kNotFound, "image is missing", path);
  }
  return fd;
}

uint64_t WholePages(uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

}  // namespace

Result<StartMessage> MakeStart(const Config& config, const std::string& base_image,
                               const SandboxFiles& files, const SandboxRecord& record) {
  const std::string& dir = config.images_dir;
  SPACE_TRY(UniqueFd kernel, OpenImage(dir + "/kernel/vmlinux"), "template " + record.template_id);
  SPACE_TRY(UniqueFd initramfs, OpenImage(dir + "/initramfs.img"),
            "template " + record.template_id);
  SPACE_TRY(UniqueFd base, OpenImage(base_image), "template " + record.template_id);
  SPACE_TRY(UniqueFd modules, OpenImage(dir + "/kernel/modules.img"),
            "template " + record.template_id);
  SPACE_TRY(UniqueFd top, OpenReadWrite(files.top_layer()), "open disk");
  SPACE_TRY(UniqueFd serial, OpenAppend(files.serial_log()), "open serial log");
  SPACE_TRY(UniqueFd exit_record, OpenReadWrite(files.exit_record()), "open exit record");
  SPACE_TRY(const uint64_t base_bytes, FileSize(base.get()), base_image);
  SPACE_TRY(const uint64_t modules_bytes, FileSize(modules.get()), "modules image");
  if (MiB(record.disk_mib) < base_bytes) {
    return Fail(ErrorCode::kInvalidArgument,
                "diskSizeMB is less than the template's image needs (" +
                    std::to_string((base_bytes + MiB(1) - 1) / MiB(1)) + ")");
  }
  StartMessage start;
  start.request.vcpus = record.vcpus;
  start.request.memory_bytes = MiB(record.memory_mib);
  start.request.serial_limit_bytes = config.serial_log_bytes;
  start.request.command_line =
      config.command_line;  // the VMM puts the machine's own words before it
  using wire::LayerFormat;
  start.request.disks = {
      {"root", {LayerFormat::kRaw, LayerFormat::kSparse}, false, MiB(record.disk_mib)},
      {"modules", {LayerFormat::kRaw}, true, WholePages(modules_bytes)}};
  start.fds.push_back(std::move(kernel));
  start.fds.push_back(std::move(initramfs));
  start.fds.push_back(std::move(base));
  start.fds.push_back(std::move(top));
  start.fds.push_back(std::move(modules));
  start.fds.push_back(std::move(serial));
  start.fds.push_back(std::move(exit_record));
  return start;
}

Template BaseTemplate(const Config& config, Micros now) {
  Template base;
  base.id = "base";
  base.name = "base";
  base.vcpus = config.sandbox_vcpus;
  base.memory_mib = config.sandbox_memory_bytes / MiB(1);
  base.disk_mib = config.sandbox_disk_bytes / MiB(1);
  base.image_path = config.images_dir + "/base.img";
  base.created_at = now;
  // Written by the image's recipe; without it the template works, its digest is unknown.
  if (const auto text = ReadFile(config.images_dir + "/base.json")) {
    if (const auto value = ParseJson(*text); value && value->is_object()) {
      const json::value* digest = value->get_object().if_contains("digest");
      if (digest != nullptr && digest->is_string()) {
        base.image_digest = std::string(digest->get_string());
      }
    }
  }
  return base;
}

}  // namespace space
