#include "memory/freeze.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <optional>
#include <random>

#include <gtest/gtest.h>

#include "base/units.h"
#include "layer/layered_image.h"
#include "memory/page_scan.h"

namespace space {
namespace {

UniqueFd EmptyLayer(uint64_t size_bytes) {
  UniqueFd fd = *CreateMemfd("layer");
  EXPECT_TRUE(CreateSparseLayer(fd.get(), size_bytes).has_value());
  return fd;
}

// A machine's memory with the chain it was made from.
struct Machine {
  std::vector<UniqueFd> layers;
  MemoryMap map;
  std::optional<GuestMemory> memory;

  explicit Machine(uint64_t size_bytes) {
    memory.emplace(*GuestMemory::Create(size_bytes));
    KeepPagesSmall();
  }
  // What a snapshot of another machine gives.
  Machine(uint64_t size_bytes, std::vector<UniqueFd> from, const MemoryMap& with)
      : layers(std::move(from)), map(with) {
    std::vector<int> fds;
    for (const UniqueFd& layer : layers) {
      fds.push_back(layer.get());
    }
    auto mapped = GuestMemory::Map(size_bytes, fds, map);
    EXPECT_TRUE(mapped.has_value()) << mapped.error().message();
    memory.emplace(*std::move(mapped));
    KeepPagesSmall();
  }
  void KeepPagesSmall() const {
    EXPECT_EQ(::madvise(memory->flat().data(), memory->size_bytes(), MADV_NOHUGEPAGE), 0);
  }
  uint64_t pages() const { return memory->size_bytes() / kPageBytes; }
  std::span<std::byte> Page(uint64_t page) const {
    return memory->flat().subspan(page * kPageBytes, kPageBytes);
  }
  FreezePlan Plan(uint32_t kept, size_t limit = MemoryMap::kMaxExtents) const {
    auto scan = PageScan::Open();
    EXPECT_TRUE(scan->Scan(*memory).has_value());
    return PlanFreeze(map, kept, scan->dirty(), scan->clean(), limit);
  }
  std::vector<UniqueFd> Kept(uint32_t kept) const {
    std::vector<UniqueFd> result;
    for (uint32_t at = 0; at < kept; ++at) {
      result.push_back(*layers[at].Duplicate());
    }
    return result;
  }
};

// Forks, lets the child write, and gives the wait status.
int ForkAndWrite(const FreezePlan& plan, const GuestMemory& memory, int fd,
                 const std::function<void()>& in_parent) {
  std::array<int, 2> gate;
  EXPECT_EQ(::pipe(gate.data()), 0);
  DontForkMarks marks(plan, memory);
  const pid_t child = ::fork();
  if (child == 0) {
    char byte;
    while (::read(gate[0], &byte, 1) < 0) {
    }
    ::_exit(WriteFrozen(plan, memory, fd));
  }
  marks.Undo();
  in_parent();
  EXPECT_EQ(::write(gate[1], "x", 1), 1);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  ::close(gate[0]);
  ::close(gate[1]);
  return status;
}

// The new machine of a snapshot that a forked child of `machine` wrote, and a check that it and the
// chain of its layers hold what the memory held at the fork although it went on.
Machine Snapshot(const Machine& machine, uint32_t kept, size_t limit, std::mt19937& random) {
  const uint64_t size = machine.memory->size_bytes();
  const FreezePlan plan = machine.Plan(kept, limit);
  EXPECT_LE(plan.map_after.extents().size(), limit);
  const std::vector<std::byte> before(machine.memory->flat().begin(), machine.memory->flat().end());
  UniqueFd target = EmptyLayer(size);
  EXPECT_TRUE(CheckFreezeTarget(target.get(), *machine.memory).has_value());
  const int status = ForkAndWrite(plan, *machine.memory, target.get(), [&] {
    for (int write = 0; write < 50; ++write) {
      machine.Page(random() % machine.pages())[random() % kPageBytes] = std::byte{0xee};
    }
  });
  EXPECT_EQ(status, 0);
  std::vector<UniqueFd> chain = machine.Kept(kept);
  chain.push_back(std::move(target));
  std::vector<LayerSource> sources;
  for (const UniqueFd& layer : chain) {
    sources.push_back({*layer.Duplicate(), LayerFormat::kSparse, false});
  }
  Machine next(size, std::move(chain), plan.map_after);
  EXPECT_TRUE(std::ranges::equal(next.memory->flat(), before));
  const auto image = LayeredImage::Open(std::move(sources), size);
  EXPECT_TRUE(image.has_value());
  std::vector<std::byte> through_layers(size);
  EXPECT_TRUE(image->Read({0, size / kPageBytes}, through_layers).has_value());
  EXPECT_TRUE(through_layers == before);
  return Machine(size, next.Kept(kept + 1), plan.map_after);
}

void WriteAtRandom(const Machine& machine, std::mt19937& random) {
  for (int step = 0; step < 40; ++step) {
    const uint64_t first = random() % machine.pages();
    const uint64_t count = std::min<uint64_t>(1 + random() % 12, machine.pages() - first);
    const auto value = static_cast<std::byte>(random() % 3);  // a third become zero pages
    for (uint64_t page = first; page < first + count; ++page) {
      std::ranges::fill(machine.Page(page), value);
      machine.Page(page)[random() % kPageBytes] = value;
    }
  }
}

TEST(Freeze, ChainsOfSnapshotsHoldTheMemoryAtTheFork) {
  std::mt19937 random(1);  // NOLINT: the same sequence each time
  for (int round = 0; round < 12; ++round) {
    Machine machine(MiB(4));
    for (int depth = 0; depth < 7; ++depth) {
      WriteAtRandom(machine, random);
      const auto layers = static_cast<uint32_t>(machine.layers.size());
      const uint32_t kept =
          depth % 3 == 2 ? static_cast<uint32_t>(random() % (layers + 1)) : layers;
      const size_t limit = std::array<size_t, 4>{512, 40, 7, 1}[random() % 4];
      machine = Snapshot(machine, kept, limit, random);
      ASSERT_FALSE(HasFailure()) << "round " << round << ", depth " << depth;
    }
  }
}

TEST(Freeze, UnchangedMachineWritesNothing) {
  std::mt19937 random(1);  // NOLINT: the same sequence each time
  Machine machine(MiB(4));
  WriteAtRandom(machine, random);
  const Machine restored = Snapshot(machine, 0, 512, random);
  ASSERT_EQ(::madvise(restored.memory->flat().data(), MiB(4), MADV_POPULATE_READ), 0);
  const FreezePlan plan = restored.Plan(1);
  // Gaps that were read show the kernel's zero page.
  const UniqueFd target = EmptyLayer(MiB(4));
  EXPECT_EQ(WriteFrozen(plan, *restored.memory, target.get()), 0);
  EXPECT_TRUE(SparseLayer::Open(*target.Duplicate())->is_empty());
}

TEST(Freeze, ScatteredPagesBecomeAtMost512Mappings) {
  constexpr uint64_t kPages = 131072;
  std::mt19937 random(1);  // NOLINT: the same sequence each time
  const UniqueFd bottom = EmptyLayer(kPages * kPageBytes);
  ASSERT_EQ(::ftruncate(bottom.get(), (kPages + 1) * kPageBytes), 0);
  const MemoryMap all = *MemoryMap::Create({{{0, kPages, 0}}}, kPages, 1);
  PageBitmap dirty(kPages), clean(kPages);
  while (dirty.Count() < 16384) {
    dirty.Set({random() % kPages, 1});
  }
  const FreezePlan over_full = PlanFreeze(all, 1, dirty, clean);
  EXPECT_LE(over_full.map_after.extents().size(), 512U);
  EXPECT_GE(over_full.map_after.extents().size(), 500U);
  const FreezePlan over_nothing = PlanFreeze({}, 0, dirty, clean);
  EXPECT_EQ(over_nothing.map_after.extents().size(), 512U);
  EXPECT_EQ(over_nothing.written_pages, 16384U);
  uint64_t covered = 0;
  for (const PageRange& run : over_full.runs) {
    covered += dirty.CountIn(run);
  }
  EXPECT_EQ(covered, 16384U);
}

TEST(Freeze, AFewPagesOverAFullMapMoveOnlyShortExtents) {
  // 512 extents of 20 pages, and one dirty page in a long one: nothing long is written again.
  constexpr uint64_t kPages = 200000;
  std::vector<MemoryExtent> extents;
  for (uint64_t at = 0; at < 511; ++at) {
    extents.push_back({at * 40, 20, 0});
  }
  extents.push_back({30000, 150000, 0});
  const MemoryMap map = *MemoryMap::Create(extents, kPages, 1);
  PageBitmap dirty(kPages);
  dirty.Set({100000, 1});
  const FreezePlan plan = PlanFreeze(map, 1, dirty, PageBitmap(kPages));
  EXPECT_EQ(plan.map_after.extents().size(), 512U);
  EXPECT_LE(plan.written_pages, 200U);
}

TEST(Freeze, DontForkCoversCleanRunsOnlyAndTheFullestOnes) {
  constexpr uint64_t kPages = 512 * 1024;
  const MemoryMap all = *MemoryMap::Create({{{0, kPages, 0}}}, kPages, 1);
  PageBitmap dirty(kPages), clean(kPages);
  for (uint64_t page = 0; page < kPages; page += 1024) {
    dirty.Set({page, 1});
  }
  for (uint64_t page = 0; page < kPages / 2; page += 1024) {
    clean.Set({page + 1, 1});
  }
  for (uint64_t page = kPages / 2; page < kPages; page += 1024) {
    clean.Set({page + 1, 1000});
  }
  const FreezePlan plan = PlanFreeze(all, 1, dirty, clean);
  EXPECT_EQ(plan.dont_fork.size(), kMaxDontForkRuns);
  uint64_t in_upper_half = 0;
  for (const PageRange& pages : plan.dont_fork) {
    EXPECT_GE(pages.count, kMinDontForkPages);
    EXPECT_EQ(dirty.CountIn(pages), 0U);
    EXPECT_GT(clean.CountIn(pages), 0U);
    in_upper_half += pages.first >= kPages / 2 ? 1 : 0;
  }
  EXPECT_EQ(in_upper_half, 256U);
}

TEST(Freeze, MarkedRangesAreMissingInTheChildAndBackAfterwards) {
  std::mt19937 random(1);  // NOLINT: the same sequence each time
  const UniqueFd layer = EmptyLayer(MiB(8));
  ASSERT_TRUE(PwriteFull(layer.get(), std::vector<std::byte>(MiB(8), std::byte{5}), kPageBytes)
                  .has_value());
  std::vector<UniqueFd> layers;
  layers.push_back(*layer.Duplicate());
  const Machine machine(MiB(8), std::move(layers), *MemoryMap::Create({{{0, 2048, 0}}}, 2048, 1));
  std::ranges::fill(machine.Page(0), std::byte{1});
  ASSERT_EQ(::madvise(machine.Page(1).data(), MiB(7), MADV_POPULATE_READ), 0);
  const FreezePlan plan = machine.Plan(1);
  ASSERT_EQ(plan.dont_fork, (std::vector<PageRange>{{1, 2047}}));
  const auto child_reads = [&](uint64_t page) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::signal(SIGSEGV, SIG_DFL);
      ::_exit(static_cast<int>(*static_cast<volatile std::byte*>(machine.Page(page).data())));
    }
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return status;
  };
  {
    DontForkMarks marks(plan, *machine.memory);
    EXPECT_EQ(WEXITSTATUS(child_reads(0)), 1);
    EXPECT_NE(child_reads(5), 5 << 8);
  }
  EXPECT_EQ(child_reads(5), 5 << 8);
  EXPECT_EQ(child_reads(0), 1 << 8);
}

TEST(Freeze, FullDiskIsAnErrorAndTheSourceGoesOn) {
  std::mt19937 random(1);  // NOLINT: the same sequence each time
  const Machine machine(MiB(4));
  WriteAtRandom(machine, random);
  const std::vector<std::byte> before(machine.memory->flat().begin(), machine.memory->flat().end());
  const FreezePlan plan = machine.Plan(0);
  const UniqueFd target = EmptyLayer(MiB(4));
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{MiB(2), MiB(2)};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::_exit(WriteFrozen(plan, *machine.memory, target.get()));
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), EFBIG);
  EXPECT_TRUE(std::ranges::equal(machine.memory->flat(), before));
  // A descriptor that cannot be written.
  const UniqueFd read_only = *OpenReadOnly("/proc/self/fd/" + std::to_string(target.get()));
  EXPECT_NE(WriteFrozen(plan, *machine.memory, read_only.get()), 0);
  EXPECT_EQ(WriteFrozen(plan, *machine.memory, target.get()), 0);
}

bool WriteTo(const std::string& path, const std::string& text) {
  const auto fd = OpenReadWrite(path);
  return fd.has_value() && WriteFull(fd->get(), text).has_value();
}

TEST(Freeze, FullFileSystemIsAnErrorAndTheSourceGoesOn) {
  const Machine machine(MiB(4));
  std::ranges::fill(machine.memory->flat(), std::byte{1});
  const FreezePlan plan = machine.Plan(0);
  std::string folder = "/tmp/freeze_test_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    // A file system of its own with room for half of it; 200: not allowed to make one.
    const std::string user = "0 " + std::to_string(::getuid()) + " 1";
    const std::string group = "0 " + std::to_string(::getgid()) + " 1";
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 || !WriteTo("/proc/self/uid_map", user) ||
        !WriteTo("/proc/self/setgroups", "deny") || !WriteTo("/proc/self/gid_map", group) ||
        ::mount("none", folder.c_str(), "tmpfs", 0, "size=2m") != 0) {
      ::_exit(200);
    }
    const UniqueFd target = *CreateExclusive(folder + "/layer");
    if (!CreateSparseLayer(target.get(), MiB(4)).has_value()) {
      ::_exit(201);
    }
    ::_exit(WriteFrozen(plan, *machine.memory, target.get()));
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ::rmdir(folder.c_str());
  if (WEXITSTATUS(status) == 200) {
    GTEST_SKIP() << "no user namespaces here";
  }
  EXPECT_EQ(WEXITSTATUS(status), ENOSPC);
  const UniqueFd target = EmptyLayer(MiB(4));
  EXPECT_EQ(WriteFrozen(plan, *machine.memory, target.get()), 0);
}

TEST(Freeze, CheckFreezeTarget_RefusesUsedAndForeignFiles) {
  const Machine machine(MiB(4));
  EXPECT_TRUE(CheckFreezeTarget(EmptyLayer(MiB(4)).get(), *machine.memory).has_value());
  EXPECT_FALSE(CheckFreezeTarget(EmptyLayer(MiB(8)).get(), *machine.memory).has_value());
  EXPECT_FALSE(CheckFreezeTarget(CreateMemfd("x")->get(), *machine.memory).has_value());
  EXPECT_FALSE(CheckFreezeTarget(-1, *machine.memory).has_value());
  std::ranges::fill(machine.Page(3), std::byte{1});
  const UniqueFd used = EmptyLayer(MiB(4));
  ASSERT_EQ(WriteFrozen(machine.Plan(0), *machine.memory, used.get()), 0);
  EXPECT_FALSE(CheckFreezeTarget(used.get(), *machine.memory).has_value());
}

}  // namespace
}  // namespace space
