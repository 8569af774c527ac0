// bench-floor: what bare KVM costs on this host, below which no monitor can get. Makes a VM with
// memory, interrupt chip and one vCPU, runs its first instruction to an exit, and takes it down.
// Two orders of the same calls are interleaved: memory slot before the interrupt chip, and after.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "kvm/probe.h"
#include "kvm/system.h"
#include "memory/guest_memory.h"
#include "report.h"

namespace space {
namespace {

using bench::Percentile;
using bench::StopWatch;

constexpr size_t kStepCount = 7;
constexpr std::array<std::string_view, kStepCount> kStepNames = {
    "create VM", "memory slot", "interrupt chip", "vCPU", "first exit", "all up to it", "teardown"};
enum Step : size_t { kCreate, kMemory, kChip, kVcpu, kFirstExit, kTotal, kTeardown };

enum class Order { kMemoryFirst, kChipFirst };
using Times = std::array<double, kStepCount>;  // microseconds

Result<void> RunFirst(kvm::Vcpu& vcpu) {
  SPACE_TRY(kvm_sregs special, vcpu.SpecialRegisters(), "first exit");
  special.cs.base = 0;
  special.cs.selector = 0;
  SPACE_TRY_VOID(vcpu.SetSpecialRegisters(special), "first exit");
  kvm_regs registers = {};
  registers.rip = 0x1000;
  registers.rflags = 2;
  SPACE_TRY_VOID(vcpu.SetRegisters(registers), "first exit");
  SPACE_TRY(const kvm::VcpuExit exit, vcpu.Run(), "first exit");
  if (!std::holds_alternative<kvm::PortExit>(exit)) {
    return Fail(ErrorCode::kInternal, "the guest did not write its port");
  }
  return {};
}

Result<Times> MeasureOnce(const kvm::System& system, const GuestMemory& memory, Order order) {
  Times times{};
  StopWatch whole;
  {
    StopWatch watch;
    SPACE_TRY(const kvm::Vm created, system.CreateVm(), "measure");
    times[kCreate] = watch.Lap();
    if (order == Order::kMemoryFirst) {
      SPACE_TRY_VOID(created.SetMemory(memory), "measure");
      times[kMemory] = watch.Lap();
    }
    SPACE_TRY_VOID(created.CreateInterruptChip(), "measure");
    times[kChip] = watch.Lap();
    if (order == Order::kChipFirst) {
      SPACE_TRY_VOID(created.SetMemory(memory), "measure");
      times[kMemory] = watch.Lap();
    }
    SPACE_TRY(kvm::Vcpu vcpu, created.CreateVcpu(0), "measure");
    times[kVcpu] = watch.Lap();
    SPACE_TRY_VOID(RunFirst(vcpu), "measure");
    times[kFirstExit] = watch.Lap();
    times[kTotal] = whole.Lap();
  }
  times[kTeardown] = whole.Lap();
  return times;
}

void Print(std::string_view order, const std::vector<Times>& runs) {
  std::printf("\norder: %s\n%-16s %10s %10s %10s  us, %zu runs\n", order.data(), "step", "p50",
              "p95", "p99", runs.size());
  for (size_t step = 0; step < kStepCount; ++step) {
    std::vector<double> values;
    for (const Times& times : runs) {
      values.push_back(times[step]);
    }
    std::printf("%-16s %10.1f %10.1f %10.1f\n", kStepNames[step].data(), Percentile(values, 50),
                Percentile(values, 95), Percentile(values, 99));
  }
}

Result<void> Measure(size_t runs) {
  SPACE_TRY(UniqueFd device, OpenReadWrite("/dev/kvm"), "bench-floor");
  SPACE_TRY(const kvm::System system, kvm::System::Create(std::move(device)), "bench-floor");
  SPACE_TRY(const GuestMemory memory, GuestMemory::Create(MiB(128)), "bench-floor");
  constexpr std::array<uint8_t, 4> kCode = {0xe6, 0x42, 0xeb, 0xfc};  // out 0x42; jmp back
  SPACE_TRY_VOID(memory.WriteBytes(GuestAddress{0x1000}, std::as_bytes(std::span(kCode))), "code");
  std::vector<Times> memory_first, chip_first;
  for (size_t run = 0; run < runs; ++run) {
    SPACE_TRY(memory_first.emplace_back(), MeasureOnce(system, memory, Order::kMemoryFirst), "run");
    SPACE_TRY(chip_first.emplace_back(), MeasureOnce(system, memory, Order::kChipFirst), "run");
  }
  Print("VM, memory, chip, vCPU (ours)", memory_first);
  Print("VM, chip, memory, vCPU", chip_first);
  return {};
}

}  // namespace
}  // namespace space

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--probe") {
    const space::KvmVerdict verdict = space::ProbeKvmAt("/dev/kvm");
    std::printf("%s: %s\n", verdict.is_usable ? "usable" : "not usable", verdict.reason.c_str());
    return verdict.is_usable ? 0 : 1;
  }
  const size_t runs = argc == 2 ? std::strtoul(argv[1], nullptr, 10) : 200;
  if (argc > 2 || runs == 0) {
    std::fputs("usage: bench-floor [RUNS | --probe]\n", stderr);
    return 2;
  }
  space::bench::PrintWhere(std::string(argv[0]) + " " + std::to_string(runs));
  const auto measured = space::Measure(runs);
  if (!measured) {
    std::fprintf(stderr, "bench-floor: %s\n", measured.error().message().c_str());
    return 1;
  }
  return 0;
}
