#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "agent/identity.h"
#include "agent/pid1/boot.h"
#include "agent/pid1/disks.h"
#include "agent/text_file.h"
#include "base/log.h"
#include "base/random.h"

namespace space::agent::pid1 {
namespace {

constexpr std::string_view kHostName = "sandbox";
constexpr size_t kMaxTextBytes = 1 << 20;

void LogIfFailed(const Result<void>& result, std::string_view event) {
  if (!result) {
    log::Warn(event, {{"error", result.error().message()}});
  }
}

bool HasWord(std::string_view text, std::string_view word) {
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const auto is_blank = [&text](size_t i) {
      return i >= text.size() || text[i] == ' ' || text[i] == '\t' || text[i] == '\n';
    };
    if ((at == 0 || is_blank(at - 1)) && is_blank(at + word.size())) {
      return true;
    }
  }
  return false;
}

// sudo complains about a host name that does not resolve.
void SetNames() {
  if (sethostname(kHostName.data(), kHostName.size()) < 0) {
    log::Warn("hostname_not_set");
  }
  const auto hosts = ReadRegularFile("/etc/hosts", kMaxTextBytes);
  if (!hosts && hosts.error().code() != ErrorCode::kNotFound) {
    return;
  }
  std::string text = hosts.value_or("");
  const std::string before = text;
  if (!text.empty() && !text.ends_with('\n')) {
    text += '\n';
  }
  if (!HasWord(text, "localhost")) {
    text += "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n";
  }
  if (!HasWord(text, kHostName)) {
    text += "127.0.1.1 " + std::string(kHostName) + "\n";
  }
  if (text != before) {
    mkdir("/etc", 0755);
    LogIfFailed(OverwriteFile("/etc/hosts", text, 0644), "hosts_not_written");
  }
}

// Images are made with an empty one, so that clones do not share it.
void MakeMachineId() {
  const auto id = ReadRegularFile("/etc/machine-id", 64);
  const bool is_empty = id ? id->size() < 32 : id.error().code() == ErrorCode::kNotFound;
  if (is_empty) {
    LogIfFailed(WriteMachineId("", RandomHex(16)), "machine_id_not_written");
  }
}

}  // namespace

void FinishSetup(const BootedGuest& guest) {
  if (!guest.modules_device.empty()) {
    LogIfFailed(MountModules(guest.modules_device), "modules_not_mounted");
  }
  SetNames();
  MakeMachineId();
  // Growing by gigabytes takes a while; a first command that sees a smaller disk is not harmed.
  std::thread([device = guest.root_device] {
    LogIfFailed(GrowRoot(device), "root_not_grown");
  }).detach();
}

}  // namespace space::agent::pid1
