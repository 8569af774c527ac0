#include "node/images.h"

#include <sys/stat.h>

#include <array>
#include <filesystem>

#include <openssl/sha.h>

#include "base/units.h"
#include "catalog/json.h"
#include "wire/vmm_control.h"

namespace space {
namespace {

std::string HexDigest(std::string_view text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const unsigned char byte : digest) {
    hex += kDigits[byte >> 4U];
    hex += kDigits[byte & 15U];
  }
  return hex;
}

// Contents would be read anew at every start of spaced; a file that changed has another time.
Result<std::string> Identity(const std::string& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) {
      return Fail(ErrorCode::kNotFound, "image is missing", path);
    }
    return FailErrno("look at image", path);
  }
  return path + " " + std::to_string(info.st_size) + " " + std::to_string(info.st_mtim.tv_sec) +
         "." + std::to_string(info.st_mtim.tv_nsec) + "\n";
}

std::string_view LineOf(std::string_view text, std::string_view name) {
  const size_t at = text.find("\n" + std::string(name));
  if (at == std::string_view::npos) {
    return {};
  }
  return text.substr(at + 1, text.find('\n', at + 1) - at - 1);
}

// A machine that was promised one CPU's features is not restored on another.
const std::string& CpuText() {
  static const std::string kText = [] {
    const auto info = ReadFile("/proc/cpuinfo", 64 << 20);
    if (!info) {
      return std::string("unknown");
    }
    std::string text;
    for (const char* name : {"vendor_id", "cpu family", "model\t", "model name", "flags"}) {
      text += std::string(LineOf("\n" + *info, name)) + "\n";
    }
    return text;
  }();
  return kText;
}

}  // namespace

std::string KernelPath(const Config& config) { return config.images_dir + "/kernel/vmlinux"; }
std::string InitramfsPath(const Config& config) { return config.images_dir + "/initramfs.img"; }
std::string ModulesPath(const Config& config) { return config.images_dir + "/kernel/modules.img"; }

Result<UniqueFd> OpenImage(const std::string& path) {
  auto fd = OpenReadOnly(path);
  if (!fd && fd.error().code() == ErrorCode::kNotFound) {
    return Fail(ErrorCode::kNotFound, "image is missing", path);
  }
  return fd;
}

std::string VmmProgram(const Config& config) {
  if (!config.vmm_path.empty()) {
    return config.vmm_path;
  }
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path() / "space-vmm").string();
}

Result<std::string> VariantFingerprint(const Config& config, const Template& base, uint32_t vcpus,
                                       uint64_t memory_mib, uint64_t disk_mib) {
  std::string text = "space snapshot of a booted template, 1\n" + base.id + "\n" +
                     base.image_digest + "\n" + std::to_string(wire::kVmmControlVersion) + "\n" +
                     std::to_string(vcpus) + "c-" + std::to_string(memory_mib) + "m-" +
                     std::to_string(disk_mib) + "d\n" + config.command_line + "\n" +
                     (config.serial_log_bytes != 0 ? "serial\n" : "no serial\n") + CpuText();
  for (const std::string& path : {KernelPath(config), InitramfsPath(config), ModulesPath(config),
                                  base.image_path, VmmProgram(config)}) {
    SPACE_TRY(const std::string identity, Identity(path), "template " + base.id);
    text += identity;
  }
  return HexDigest(text);
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
