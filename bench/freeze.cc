// bench-freeze: how long a machine of 512 MiB with 64 MiB written stands still for a snapshot, and
// what the child then needs to write it. Beside it, from the same process and interleaved with it,
// the bare thing: read the pagemap, fork(), nothing else, with the same pages mapped and a KVM
// machine over them.
#include "memory/freeze.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <string_view>

#include "base/units.h"
#include "kvm/system.h"
#include "memory/page_scan.h"
#include "report.h"

namespace space {
namespace {

using bench::Percentile;
using bench::StopWatch;

constexpr uint64_t kMemoryBytes = MiB(512);
constexpr uint64_t kPages = kMemoryBytes / kPageBytes;
constexpr uint64_t kDirtyPages = MiB(64) / kPageBytes;
constexpr uint64_t kDirtyStart = MiB(128);
// Touched by the guest after every fork: half of it written when the dirty pages are contiguous.
constexpr uint64_t kTouchStart = MiB(96);
constexpr uint64_t kTouchBytes = MiB(64);
constexpr uint64_t kCodeAt = 0x1000;

enum Step : size_t {
  kScan,
  kPlan,
  kMark,
  kFork,
  kPause,
  kCopy,
  kBareScan,
  kBareFork,
  kBare,
  kTouch,
  kBareTouch,
  kStepCount
};
constexpr std::array<const char*, kStepCount> kStepNames = {
    "scan",      "plan",      "mark",       "fork",           "pause: all four", "child's copy",
    "bare scan", "bare fork", "bare: both", "guest re-reads", "... after bare"};
using Times = std::array<double, kStepCount>;  // microseconds

// Reads one word of each page in a range, on a vCPU.
class Toucher {
 public:
  static Result<Toucher> Create(const GuestMemory& memory) {
    SPACE_TRY(UniqueFd device, OpenReadWrite("/dev/kvm"), "bench-freeze");
    SPACE_TRY(const kvm::System system, kvm::System::Create(std::move(device)), "bench-freeze");
    SPACE_TRY(kvm::Vm vm, system.CreateVm(), "bench-freeze");
    SPACE_TRY_VOID(vm.SetMemory(memory), "bench-freeze");
    SPACE_TRY_VOID(vm.CreateInterruptChip(), "bench-freeze");
    SPACE_TRY(kvm::Vcpu vcpu, vm.CreateVcpu(0), "bench-freeze");
    SPACE_TRY(kvm_sregs special, vcpu.SpecialRegisters(), "bench-freeze");
    special.cr0 |= 1;  // protected mode, flat, no paging
    for (kvm_segment* segment : {&special.cs, &special.ds, &special.es, &special.ss}) {
      *segment = {.base = 0,
                  .limit = 0xffffffff,
                  .selector = 16,
                  .type = 3,
                  .present = 1,
                  .dpl = 0,
                  .db = 1,
                  .s = 1,
                  .l = 0,
                  .g = 1,
                  .avl = 0,
                  .unusable = 0,
                  .padding = 0};
    }
    special.cs.selector = 8;
    special.cs.type = 11;
    SPACE_TRY_VOID(vcpu.SetSpecialRegisters(special), "bench-freeze");
    // next: mov eax, [esi]; add esi, 4096; cmp esi, edi; jb next; out 0x42, al
    constexpr std::array<uint8_t, 14> kCode = {0x8b, 0x06, 0x81, 0xc6, 0x00, 0x10, 0x00,
                                               0x00, 0x39, 0xfe, 0x72, 0xf4, 0xe6, 0x42};
    SPACE_TRY_VOID(memory.WriteBytes(GuestAddress{kCodeAt}, std::as_bytes(std::span(kCode))),
                   "bench-freeze");
    return Toucher(std::move(vm), std::move(vcpu));
  }

  Result<void> Touch(uint64_t start, uint64_t bytes) {
    kvm_regs registers = {};
    registers.rip = kCodeAt;
    registers.rsi = start;
    registers.rdi = start + bytes;
    registers.rflags = 2;
    SPACE_TRY_VOID(vcpu_.SetRegisters(registers), "touch");
    SPACE_TRY(const kvm::VcpuExit exit, vcpu_.Run(), "touch");
    if (!std::holds_alternative<kvm::PortExit>(exit)) {
      return Fail(ErrorCode::kInternal, "the guest did not write its port");
    }
    // The exit completes with the next entry; let it, or setting rip would be undone.
    return {};
  }

 private:
  Toucher(kvm::Vm vm, kvm::Vcpu vcpu) : vm_(std::move(vm)), vcpu_(std::move(vcpu)) {}
  kvm::Vm vm_;
  kvm::Vcpu vcpu_;
};

Result<void> WaitFor(pid_t child) {
  int status = -1;
  if (child < 0 || ::waitpid(child, &status, 0) != child || status != 0) {
    return Fail(ErrorCode::kInternal, "the child failed");
  }
  return {};
}

// The least that finds the written pages and keeps their image.
Result<void> MeasureBare(int pagemap, const GuestMemory& memory, std::vector<uint64_t>& entries,
                         Times& times) {
  StopWatch watch;
  const auto offset = reinterpret_cast<uintptr_t>(memory.flat().data()) / kPageBytes * 8;
  SPACE_TRY_VOID(PreadFull(pagemap, std::as_writable_bytes(std::span(entries)), offset), "scan");
  uint64_t dirty = 0;
  for (const uint64_t entry : entries) {
    dirty += (entry >> 63 | entry >> 62) & ~(entry >> 61) & 1;
  }
  times[kBareScan] = watch.Lap();
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(0);
  }
  times[kBareFork] = watch.Lap();
  times[kBare] = times[kBareScan] + times[kBareFork];
  if (dirty < kDirtyPages) {
    return Fail(ErrorCode::kInternal, "the scan missed written pages");
  }
  return WaitFor(child);
}

Result<FreezePlan> MeasureOurs(PageScan& scan, const MemoryMap& map, const GuestMemory& memory,
                               Times& times) {
  SPACE_TRY(const UniqueFd target, CreateMemfd("frozen"), "freeze");
  SPACE_TRY_VOID(CreateSparseLayer(target.get(), kMemoryBytes), "freeze");
  StopWatch watch;
  SPACE_TRY_VOID(scan.Scan(memory), "freeze");
  times[kScan] = watch.Lap();
  FreezePlan plan = PlanFreeze(map, 1, scan.dirty(), scan.clean());
  times[kPlan] = watch.Lap();
  DontForkMarks marks(plan, memory);
  times[kMark] = watch.Lap();
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(WriteFrozen(plan, memory, target.get()));
  }
  times[kFork] = watch.Lap();
  marks.Undo();
  times[kMark] += watch.Lap();
  times[kPause] = times[kScan] + times[kPlan] + times[kMark] + times[kFork];
  SPACE_TRY_VOID(WaitFor(child), "freeze");
  times[kCopy] = watch.Lap();
  return plan;
}

void WriteDirty(const GuestMemory& memory, bool is_scattered) {
  std::mt19937 random(1);  // NOLINT: the same pages each time
  std::vector<uint8_t> chosen(kPages);
  for (uint64_t count = 0; count < kDirtyPages;) {
    const uint64_t page = is_scattered ? random() % kPages : kDirtyStart / kPageBytes + count;
    if (chosen[page] == 0) {
      chosen[page] = 1;
      std::memset(memory.flat().data() + page * kPageBytes, 0x5a, kPageBytes);
      ++count;
    }
  }
}

Result<UniqueFd> MakeBase() {
  SPACE_TRY(UniqueFd base, CreateMemfd("base"), "make base");
  SPACE_TRY_VOID(CreateSparseLayer(base.get(), kMemoryBytes), "make base");
  const std::vector<std::byte> bytes(MiB(4), std::byte{1});
  for (uint64_t at = 0; at < kMemoryBytes; at += bytes.size()) {
    SPACE_TRY_VOID(PwriteFull(base.get(), bytes, kPageBytes + at), "make base");
  }
  return base;
}

void Print(const std::vector<Times>& runs) {
  std::printf("%-16s %10s %10s %10s  us, %zu runs\n", "", "p50", "p95", "p99", runs.size());
  for (size_t step = 0; step < kStepCount; ++step) {
    std::vector<double> values;
    for (const Times& times : runs) {
      values.push_back(times[step]);
    }
    std::printf("%-16s %10.0f %10.0f %10.0f\n", kStepNames[step], Percentile(values, 50),
                Percentile(values, 95), Percentile(values, 99));
  }
}

double MedianOf(const std::vector<Times>& runs, Step step) {
  std::vector<double> values;
  for (const Times& times : runs) {
    values.push_back(times[step]);
  }
  return Percentile(values, 50);
}

// Ours over bare, of the medians.
Result<double> Measure(const UniqueFd& base, bool is_scattered, size_t run_count) {
  const int fd = base.get();
  SPACE_TRY(const MemoryMap map, MemoryMap::Create({{{0, kPages, 0}}}, kPages, 1), "bench-freeze");
  SPACE_TRY(const GuestMemory memory, GuestMemory::Map(kMemoryBytes, {&fd, 1}, map), "map");
  SPACE_TRY(Toucher guest, Toucher::Create(memory), "make guest");
  WriteDirty(memory, is_scattered);
  if (::madvise(memory.flat().data(), kMemoryBytes, MADV_POPULATE_READ) != 0) {
    return FailErrno("map all pages");
  }
  SPACE_TRY_VOID(guest.Touch(MiB(1), kMemoryBytes - MiB(1)), "first touch");
  SPACE_TRY(PageScan scan, PageScan::Open(), "bench-freeze");
  scan.Reserve(kMemoryBytes);
  SPACE_TRY(const UniqueFd pagemap, OpenReadOnly("/proc/self/pagemap"), "bench-freeze");
  std::vector<uint64_t> entries(kPages);
  std::vector<Times> runs;
  std::optional<FreezePlan> plan;
  for (size_t run = 0; run < run_count; ++run) {
    Times& times = runs.emplace_back();
    SPACE_TRY_VOID(MeasureBare(pagemap.get(), memory, entries, times), "bare");
    StopWatch watch;
    SPACE_TRY_VOID(guest.Touch(kTouchStart, kTouchBytes), "touch");
    times[kBareTouch] = watch.Lap();
    SPACE_TRY(plan, MeasureOurs(scan, map, memory, times), "ours");
    watch.Lap();
    SPACE_TRY_VOID(guest.Touch(kTouchStart, kTouchBytes), "touch");
    times[kTouch] = watch.Lap();
  }
  std::printf(
      "\n512 MiB, 64 MiB written, %s: %lu pages written to the layer, %zu extents, %zu marks\n",
      is_scattered ? "single pages at random" : "in one piece", plan->written_pages,
      plan->map_after.extents().size(), plan->dont_fork.size());
  Print(runs);
  const double ratio = MedianOf(runs, kPause) / MedianOf(runs, kBare);
  std::printf("pause / bare = %.2f (at most 2)\n", ratio);
  return ratio;
}

}  // namespace
}  // namespace space

int main(int argc, char** argv) {
  bool is_check = false;
  size_t runs = 30;
  std::string command = argv[0];
  for (int at = 1; at < argc; ++at) {
    command.append(" ").append(argv[at]);
    if (std::string_view(argv[at]) == "--check") {
      is_check = true;
    } else {
      runs = std::strtoul(argv[at], nullptr, 10);
    }
  }
  if (runs == 0) {
    std::fputs("usage: bench-freeze [--check] [RUNS]\n", stderr);
    return 2;
  }
  space::bench::PrintWhere(command);
  const auto base = space::MakeBase();
  bool is_within = base.has_value();
  for (const bool is_scattered : {false, true}) {
    const auto ratio = base.has_value()
                           ? space::Measure(*base, is_scattered, runs)
                           : space::Result<double>(space::Fail(space::ErrorCode::kIo, "no base"));
    if (!ratio.has_value()) {
      std::fprintf(stderr, "bench-freeze: %s\n", ratio.error().message().c_str());
      return 1;
    }
    is_within = is_within && *ratio <= 2;
  }
  if (is_check) {
    std::printf("%s\n", is_within ? "ok: within the limits" : "FAIL: above the limits");
  }
  return is_check && !is_within ? 1 : 0;
}
