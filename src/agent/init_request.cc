#include "agent/init_request.h"

#include <sys/stat.h>

#include <chrono>

#include "agent/identity.h"
#include "base/log.h"

namespace space::agent {
namespace {

// Below this the clock is left alone: a step back of a moment breaks more than it mends.
constexpr std::chrono::milliseconds kMinClockError{50};

void SetClock(KernelState& kernel, const google::protobuf::Timestamp& timestamp) {
  const WallTime wanted =
      std::chrono::seconds(timestamp.seconds()) + std::chrono::nanoseconds(timestamp.nanos());
  if (std::chrono::abs(wanted - kernel.Now()) < kMinClockError) {
    return;
  }
  if (const auto set = kernel.SetClock(wanted); !set) {
    log::Warn("clock_not_set", {{"error", set.error().message()}});
  }
}

std::string ValueOr(const Settings& settings, const char* name, std::string_view fallback) {
  const auto found = settings.environment.find(name);
  return found == settings.environment.end() ? std::string(fallback) : found->second;
}

void WriteIds(const std::string& root, const Settings& settings) {
  mkdir((root + "/run/e2b").c_str(), 0755);
  for (const char* name : {"E2B_SANDBOX_ID", "E2B_TEMPLATE_ID"}) {
    const auto found = settings.environment.find(name);
    if (found != settings.environment.end()) {
      // Programs in the sandbox find its id here whatever their environment is.
      (void)OverwriteFile(root + "/run/e2b/." + name, found->second, 0644);
    }
  }
  (void)OverwriteFile(root + "/run/e2b/.E2B_SANDBOX", "true", 0644);
  const std::string template_id = ValueOr(settings, "E2B_TEMPLATE_ID", "");
  (void)OverwriteFile(root + "/.e2b",
                      "ENV_ID=" + template_id + "\nTEMPLATE_ID=" + template_id +
                          "\nBUILD_ID=" + ValueOr(settings, "E2B_BUILD_ID", "") + "\n",
                      0644);
}

}  // namespace

void ApplyInit(const rpc::rest::InitRequest& request, Settings& settings, Guest& guest) {
  if (request.env_vars_size() > 0) {
    settings.environment = {request.env_vars().begin(), request.env_vars().end()};
  }
  if (request.has_access_token()) {
    settings.access_token = request.access_token();
  }
  if (request.has_default_user() && !request.default_user().empty()) {
    settings.default_user = request.default_user();
  }
  if (request.has_default_workdir()) {
    settings.default_workdir = request.default_workdir();
  }
  if (request.has_timestamp() && !request.has_restore()) {
    SetClock(*guest.kernel, request.timestamp());
  }
  if (guest.root) {
    WriteIds(*guest.root, settings);
  }
}

}  // namespace space::agent
