// The files that VMs are booted from (images_dir, made by images/).
#pragma once

#include <string>

#include "base/fd.h"
#include "catalog/records.h"
#include "node/config.h"

namespace space {

std::string KernelPath(const Config& config);
std::string InitramfsPath(const Config& config);
std::string ModulesPath(const Config& config);

//   errors: kNotFound "image is missing" naming it
Result<UniqueFd> OpenImage(const std::string& path);

// The template that every installation has: id and name "base". Its sizes are the configured ones.
Template BaseTemplate(const Config& config, Micros now);

// Of everything that a snapshot of a booted template depends on: kernel, initramfs, modules and
// base image (by size, time and digest), the VMM's program, this CPU, the size, what the
// configuration adds. Two snapshots with the same text are interchangeable.
//   errors: kNotFound naming a missing file
Result<std::string> VariantFingerprint(const Config& config, const Template& base, uint32_t vcpus,
                                       uint64_t memory_mib, uint64_t disk_mib);

// Program of the VMM: the configured one, or space-vmm beside our own.
std::string VmmProgram(const Config& config);

}  // namespace space
