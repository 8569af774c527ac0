// What the agent says first after every boot and restore, on kHelloPort; then it closes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace space::wire {

// The surface that our agent speaks, as clients are told it (E2B.md 3.9).
constexpr std::string_view kEnvdVersion = "0.6.13";

struct Hello {
  static constexpr uint32_t kMagic = 0x4f4c4548;  // "HELO"
  static constexpr uint16_t kVersion = 1;
  static constexpr size_t kMaxBytes = 1024;

  uint16_t version = kVersion;
  std::string agent_version;  // of this project, semver
  std::string envd_version;   // E2B.md 3.9
  std::string kernel_release;
  std::string boot_id;
};

std::string Encode(const Hello& hello);
// From the guest: every field is untrusted text of at most 128 bytes.
Result<Hello> DecodeHello(std::string_view bytes);

}  // namespace space::wire
