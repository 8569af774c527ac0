// Launcher that spawns space-vmm as a child of this process.
#pragma once

#include <string>
#include <vector>

#include "node/launcher.h"

namespace space {

class LocalLauncher : public Launcher {
 public:
  // Sockets go to `socket_dir`, which exists with mode 0700.
  LocalLauncher(std::string socket_dir, std::string vmm_program)
      : socket_dir_(std::move(socket_dir)), vmm_program_(std::move(vmm_program)) {}

  Result<Launched> Launch(const wire::LaunchRequest& request,
                          std::vector<UniqueFd> descriptors) override;
  void Release(const std::string& sandbox_id) override;
  Result<std::vector<std::string>> Existing() override;
  std::string ControlPath(const std::string& sandbox_id) const override;

 private:
  std::string socket_dir_;
  std::string vmm_program_;
};

}  // namespace space
