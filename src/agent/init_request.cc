#include "agent/init_request.h"

#include <sys/stat.h>

#include <cstdlib>
#include <ctime>

#include "agent/codec.h"
#include "agent/proto/rest.pb.h"
#include "base/fd.h"
#include "base/log.h"

namespace space::agent {
namespace {

// Below this the clock is left alone: a step back of a moment breaks more than it mends.
constexpr int64_t kMinClockErrorNs = 50'000'000;

void SetClock(const google::protobuf::Timestamp& timestamp) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const int64_t off_seconds = timestamp.seconds() - now.tv_sec;
  if (std::llabs(off_seconds) <= 1 &&
      std::llabs(off_seconds * 1'000'000'000 + (timestamp.nanos() - now.tv_nsec)) <
          kMinClockErrorNs) {
    return;
  }
  const timespec wanted{.tv_sec = timestamp.seconds(), .tv_nsec = timestamp.nanos()};
  if (clock_settime(CLOCK_REALTIME, &wanted) < 0) {
    log::Warn("clock_not_set", {{"seconds", timestamp.seconds()}});
  }
}

std::string ValueOr(const Settings& settings, const char* name, std::string_view fallback) {
  const auto found = settings.environment.find(name);
  return found == settings.environment.end() ? std::string(fallback) : found->second;
}

void WriteIds(const Settings& settings) {
  mkdir("/run/e2b", 0755);
  for (const char* name : {"E2B_SANDBOX_ID", "E2B_TEMPLATE_ID"}) {
    const auto found = settings.environment.find(name);
    if (found != settings.environment.end()) {
      // Programs in the sandbox find its id here whatever their environment is.
      (void)WriteFileAtomically(std::string("/run/e2b/.") + name, found->second, 0644);
    }
  }
  (void)WriteFileAtomically("/run/e2b/.E2B_SANDBOX", "true", 0644);
  const std::string template_id = ValueOr(settings, "E2B_TEMPLATE_ID", "");
  (void)WriteFileAtomically("/.e2b",
                            "ENV_ID=" + template_id + "\nTEMPLATE_ID=" + template_id +
                                "\nBUILD_ID=" + ValueOr(settings, "E2B_BUILD_ID", "") + "\n",
                            0644);
}

}  // namespace

Result<void> ApplyInit(std::string_view body, Settings& settings) {
  rpc::rest::InitRequest request;
  SPACE_TRY_VOID(Decode(Codec::kJson, body, request), "init");
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
  if (settings.is_guest) {
    if (request.has_timestamp()) {
      SetClock(request.timestamp());
    }
    WriteIds(settings);
  }
  return {};
}

}  // namespace space::agent
