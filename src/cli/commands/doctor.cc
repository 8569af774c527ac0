#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <boost/json.hpp>

#include "base/units.h"
#include "cli/commands/commands.h"
#include "cli/daemon.h"
#include "machine/machine.h"
#include "machine/tool.h"

namespace space::cli {
namespace {

enum class Verdict { kGood, kNote, kBad };

struct Finding {
  std::string what;
  Verdict verdict = Verdict::kGood;
  std::string text;
  std::string mend;  // empty when there is nothing to do
};

struct Examination {
  Context& context;
  bool is_emulated = false;
  bool is_running = false;
};

Finding ExamineKvm(const machine::HostChoice& choice) {
  if (!choice.is_emulated) {
    return {"kvm", Verdict::kGood, choice.reason, ""};
  }
  return {
      "kvm", Verdict::kNote, choice.reason + "; sandboxes run in the emulated host, slowly",
      "use a host with hardware virtualisation (bare metal, or a VM with nested virtualisation), "
      "and be allowed to open /dev/kvm"};
}

Finding ExamineMemory(const Examination& of) {
  struct sysinfo info = {};
  (void)::sysinfo(&info);
  const uint64_t total = static_cast<uint64_t>(info.totalram) * info.mem_unit;
  const uint64_t needed = of.is_emulated ? GiB(4) : GiB(2);
  const std::string text = FormatSize(total) + " in all, " + FormatSize(needed) + " needed";
  if (total < needed) {
    return {"memory", Verdict::kBad, text, "use a host with more memory"};
  }
  return {"memory", Verdict::kGood, text, ""};
}

// Of the nearest folder that exists.
uint64_t FreeBytes(std::string path) {
  struct statvfs info = {};
  while (::statvfs(path.c_str(), &info) != 0 && path.size() > 1) {
    const size_t slash = path.rfind('/');
    path = slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
  }
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

Finding ExamineDisk(const Examination& of) {
  const std::string& folder = of.context.settings.data_dir;
  const uint64_t free = FreeBytes(folder);
  const std::string text = FormatSize(free) + " free for " + folder + ", 6 GiB wanted";
  if (free < GiB(1)) {
    return {"disk", Verdict::kBad, text, "make room, or set data_dir to a bigger disk"};
  }
  return {"disk", free < GiB(6) ? Verdict::kNote : Verdict::kGood, text,
          free < GiB(6) ? "make room, or set data_dir to a bigger disk" : ""};
}

Finding ExamineTool(const std::string& what, const std::string& program, const std::string& package,
                    bool is_needed) {
  const auto found = machine::FindProgram(program, package);
  if (found) {
    return {what, Verdict::kGood, *found, ""};
  }
  const std::string mend = "apt-get install --no-install-recommends " + package;
  return {what, is_needed ? Verdict::kBad : Verdict::kNote,
          is_needed ? "not installed" : "not installed; needed for the emulated host only", mend};
}

Finding ExamineImage(const Examination& of, const std::string& what, const std::string& name,
                     bool is_needed) {
  const std::string path = of.context.settings.images_dir + "/" + name;
  if (::access(path.c_str(), R_OK) == 0) {
    return {what, Verdict::kGood, path, ""};
  }
  return {what, is_needed ? Verdict::kBad : Verdict::kNote, path + " is missing",
          "./quickstart.sh, or images/build --out " + of.context.settings.images_dir};
}

Finding ExamineProgram(const std::string& name) {
  const std::string path = machine::ProgramFolder() + "/" + name;
  if (::access(path.c_str(), X_OK) == 0) {
    return {name, Verdict::kGood, path, ""};
  }
  return {name, Verdict::kBad, path + " is missing", "cmake --build build/release"};
}

Finding ExamineCgroups(const Examination& of) {
  if (of.is_emulated) {
    return {"cgroup v2", Verdict::kGood, "the emulated host brings its own", ""};
  }
  if (::access("/sys/fs/cgroup/cgroup.controllers", R_OK) == 0) {
    return {"cgroup v2", Verdict::kGood, "/sys/fs/cgroup", ""};
  }
  return {"cgroup v2", Verdict::kNote, "/sys/fs/cgroup is not a version 2 hierarchy",
          "boot with systemd.unified_cgroup_hierarchy=1"};
}

Finding ExaminePort(const Examination& of) {
  const machine::Settings& settings = of.context.settings;
  const std::string address = settings.listen_host + ":" + std::to_string(settings.listen_port);
  if (of.is_running) {
    return {"port", Verdict::kGood, address + " is ours", ""};
  }
  if (const auto is_free = machine::CheckPortIsFree(settings.listen_host, settings.listen_port);
      !is_free) {
    return {"port", Verdict::kBad, is_free.error().message(),
            "end the program that has it, or set listen in " + settings.path};
  }
  return {"port", Verdict::kGood, address + " is free", ""};
}

Finding ExamineDaemon(const Examination& of) {
  if (!of.is_running) {
    return {"daemon", Verdict::kNote, "does not run", "space up"};
  }
  const auto status =
      of.context.Run(of.context.api.Call("GET", "/space/v1/status", std::nullopt, 5000));
  if (!status) {
    return {"daemon", Verdict::kBad, status.error().message(),
            "space up, or space down && space up"};
  }
  return {"daemon", Verdict::kGood, "answers at " + of.context.api.endpoint().url(), ""};
}

std::vector<Finding> ExamineAll(Examination& of) {
  const machine::HostChoice choice = machine::ChooseHost(of.context.settings.machine.mode);
  of.is_emulated = choice.is_emulated;
  of.is_running = machine::Running(of.context.settings).has_value() ||
                  LocalDaemonPid(of.context.settings).has_value();
  return {ExamineKvm(choice),
          ExamineMemory(of),
          ExamineDisk(of),
          ExamineTool("qemu", of.context.settings.machine.qemu, "qemu-system-x86", of.is_emulated),
          ExamineTool("e2fsprogs", "mke2fs", "e2fsprogs", of.is_emulated),
          ExamineProgram("spaced"),
          ExamineProgram("space-vmm"),
          ExamineImage(of, "kernel image", "kernel/vmlinux", true),
          ExamineImage(of, "initramfs", "initramfs.img", true),
          ExamineImage(of, "base image", "base.img", true),
          ExamineImage(of, "emulated host", "machine/root.img", of.is_emulated),
          ExamineCgroups(of),
          ExaminePort(of),
          ExamineDaemon(of)};
}

std::string_view VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kGood:
      return "ok";
    case Verdict::kNote:
      return "note";
    case Verdict::kBad:
      return "FAIL";
  }
  return "";
}

Result<int> RunDoctor(const Invocation& invocation) {
  SPACE_TRY_VOID(NeedWords(invocation, 0, "doctor takes no words"), "doctor");
  SPACE_TRY(const std::unique_ptr<Context> context, MakeContext(invocation), "doctor");
  Examination examination{*context};
  const std::vector<Finding> findings = ExamineAll(examination);
  bool is_bad = false;
  boost::json::array list;
  std::string text;
  for (const Finding& finding : findings) {
    is_bad = is_bad || finding.verdict == Verdict::kBad;
    list.push_back({{"check", finding.what},
                    {"verdict", VerdictName(finding.verdict)},
                    {"text", finding.text},
                    {"mend", finding.mend}});
    std::string line = std::string(VerdictName(finding.verdict));
    line.resize(6, ' ');
    line += finding.what;
    line.resize(std::max<size_t>(line.size() + 1, 22), ' ');
    text += line + finding.text + "\n";
    if (!finding.mend.empty()) {
      text += std::string(22, ' ') + "-> " + finding.mend + "\n";
    }
  }
  Print(invocation.arguments.Has("json") ? boost::json::serialize(list) + "\n" : text);
  return is_bad ? 1 : 0;
}

}  // namespace

Command Doctor() {
  return {
      .name = "doctor",
      .summary = "Check what this host needs to run sandboxes, and say how to mend it",
      .usage = "[--json]",
      .options = {{"json", 0, "", "print one JSON list"}},
      .examples = {"space doctor", "space doctor --json | jq '.[] | select(.verdict != \"ok\")'"},
      .run = RunDoctor};
}

}  // namespace space::cli
