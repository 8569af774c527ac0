// The files a VM is started from (images_dir, made by images/), and the message that starts it.
#pragma once

#include <string>
#include <vector>

#include "base/fd.h"
#include "catalog/records.h"
#include "node/config.h"
#include "node/sandbox_files.h"
#include "wire/vmm_control.h"

namespace space {

struct StartMessage {
  wire::StartRequest request;
  std::vector<UniqueFd> fds;  // in the order of wire::StartRequest
};

// Opens everything. `base_image` is the template's root file system.
//   errors: kNotFound naming the missing image, kInvalidArgument naming diskSizeMB when the disk is
//   smaller than the image
Result<StartMessage> MakeStart(const Config& config, const std::string& base_image,
                               const SandboxFiles& files, const SandboxRecord& record);

// The template that every installation has: id and name "base". Its sizes are the configured ones.
Template BaseTemplate(const Config& config, Micros now);

}  // namespace space
