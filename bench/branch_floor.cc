// bench-branch-floor: what no snapshot of a live machine by fork() can get below on this host: a
// process with as much guest memory mapped and written and a KVM slot over it reads its pagemap and
// forks. Prints medians in microseconds.
#include <fcntl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "base/units.h"
#include "kvm/system.h"
#include "memory/guest_memory.h"

namespace space {
namespace {

using std::chrono::steady_clock;

struct Shape {
  uint64_t memory_pages = 0;
  uint64_t mapped_pages = 0;  // read once: their page tables are there
  uint64_t dirty_pages = 0;   // written, single and spread at random
  size_t runs = 0;
};

double MicrosSince(steady_clock::time_point begun) {
  return std::chrono::duration<double, std::micro>(steady_clock::now() - begun).count();
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// A file of one header page and the memory, as a layer has it.
Result<GuestMemory> MapMemory(const Shape& shape) {
  SPACE_TRY(const UniqueFd layer, CreateMemfd("layer"), "make layer");
  const uint64_t bytes = (shape.memory_pages + 1) * kPageBytes;
  if (::ftruncate(layer.get(), static_cast<off_t>(bytes)) != 0 ||
      ::posix_fallocate(layer.get(), 0, static_cast<off_t>(bytes)) != 0) {
    return FailErrno("fill layer");
  }
  const std::vector<MemoryExtent> all = {{0, shape.memory_pages, 0}};
  SPACE_TRY(const MemoryMap map, MemoryMap::Create(all, shape.memory_pages, 1), "map");
  const int fd = layer.get();
  return GuestMemory::Map(shape.memory_pages * kPageBytes, {&fd, 1}, map);
}

void Touch(const GuestMemory& memory, const Shape& shape) {
  volatile std::byte* bytes = memory.flat().data();
  for (uint64_t page = 0; page < shape.mapped_pages; ++page) {
    [[maybe_unused]] const std::byte seen = bytes[page * kPageBytes];
  }
  std::vector<uint64_t> pages(shape.memory_pages);
  for (uint64_t page = 0; page < shape.memory_pages; ++page) {
    pages[page] = page;
  }
  std::shuffle(pages.begin(), pages.end(), std::mt19937_64(7));
  for (uint64_t at = 0; at < shape.dirty_pages; ++at) {
    bytes[pages[at] * kPageBytes] = std::byte{1};
  }
}

Result<uint64_t> CountDirty(int pagemap, const GuestMemory& memory,
                            std::vector<uint64_t>& entries) {
  constexpr uint64_t kPresentOrSwapped = 3ULL << 62;
  constexpr uint64_t kFileBacked = 1ULL << 61;
  const auto first = reinterpret_cast<uintptr_t>(memory.flat().data()) / kPageBytes;
  const size_t bytes = entries.size() * sizeof(uint64_t);
  if (::pread(pagemap, entries.data(), bytes, static_cast<off_t>(first * sizeof(uint64_t))) !=
      static_cast<ssize_t>(bytes)) {
    return FailErrno("read pagemap");
  }
  return static_cast<uint64_t>(std::ranges::count_if(entries, [](uint64_t entry) {
    return (entry & kPresentOrSwapped) != 0 && (entry & kFileBacked) == 0;
  }));
}

Result<void> Measure(const Shape& shape) {
  SPACE_TRY(UniqueFd device, OpenReadWrite("/dev/kvm"), "bench-branch-floor");
  SPACE_TRY(const kvm::System system, kvm::System::Create(std::move(device)), "bench-branch-floor");
  SPACE_TRY(const GuestMemory memory, MapMemory(shape), "bench-branch-floor");
  Touch(memory, shape);
  SPACE_TRY(const kvm::Vm vm, system.CreateVm(), "bench-branch-floor");
  SPACE_TRY_VOID(vm.SetMemory(memory), "bench-branch-floor");
  SPACE_TRY(const UniqueFd pagemap, OpenReadOnly("/proc/self/pagemap"), "bench-branch-floor");
  std::vector<uint64_t> entries(shape.memory_pages);
  std::vector<double> scans, forks;
  uint64_t dirty = 0;
  for (size_t run = 0; run < shape.runs; ++run) {
    const auto begun = steady_clock::now();
    SPACE_TRY(dirty, CountDirty(pagemap.get(), memory, entries), "scan");
    scans.push_back(MicrosSince(begun));
    const auto forked = steady_clock::now();
    const pid_t child = ::fork();
    if (child == 0) {
      ::_exit(0);
    }
    forks.push_back(MicrosSince(forked));
    if (child < 0 || ::waitpid(child, nullptr, 0) != child) {
      return FailErrno("fork");
    }
  }
  std::printf("dirty %llu pages\nscan %.1f\nfork %.1f\n", static_cast<unsigned long long>(dirty),
              Median(scans), Median(forks));
  return {};
}

}  // namespace
}  // namespace space

int main(int argc, char** argv) {
  const auto number = [&](int at) {
    return at < argc ? std::strtoull(argv[at], nullptr, 10) : 0ULL;
  };
  constexpr uint64_t kPagesPerMiB = 256;
  const space::Shape shape = {number(1) * kPagesPerMiB, number(2) * kPagesPerMiB, number(3),
                              number(4)};
  if (argc != 5 || shape.memory_pages == 0 || shape.runs == 0 ||
      std::max(shape.mapped_pages, shape.dirty_pages) > shape.memory_pages) {
    std::fputs("usage: bench-branch-floor MEMORY_MIB MAPPED_MIB DIRTY_PAGES RUNS\n", stderr);
    return 2;
  }
  const auto measured = space::Measure(shape);
  if (!measured) {
    std::fprintf(stderr, "bench-branch-floor: %s\n", measured.error().message().c_str());
    return 1;
  }
  return 0;
}
