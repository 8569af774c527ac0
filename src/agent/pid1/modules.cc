#include "agent/pid1/modules.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/fd.h"
#include "base/log.h"

namespace space::agent::pid1 {
namespace {

void LoadOne(const std::string& path) {
  const auto module = OpenReadOnly(path);
  if (!module) {
    log::Warn("module_missing", {{"path", path}});
    return;
  }
  if (syscall(SYS_finit_module, module->get(), "", 0) < 0 && errno != EEXIST) {
    log::Warn("module_not_loaded", {{"path", path}, {"error", strerrordesc_np(errno)}});
  }
}

}  // namespace

void LoadModules(const std::string& folder) {
  const auto order = ReadFile(folder + "/order");
  if (!order) {
    log::Warn("modules_order_missing", {{"folder", folder}});
    return;
  }
  std::string_view rest = *order;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    const std::string_view name = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (!name.empty()) {
      LoadOne(folder + "/" + std::string(name));
    }
  }
}

}  // namespace space::agent::pid1
