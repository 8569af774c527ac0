// bench-layers: what the length of a disk's chain costs. A 4 GiB image with 256 MiB written in
// scattered pieces over all its layers: opening it, reading it, freezing its top, merging it.
#include <random>
#include <string_view>

#include "base/units.h"
#include "layer/layered_image.h"
#include "layer/merge.h"
#include "report.h"

namespace space {
namespace {

using bench::Percentile;
using bench::StopWatch;

constexpr uint64_t kImageBytes = GiB(4);
constexpr uint64_t kPages = kImageBytes / kPageBytes;
constexpr uint64_t kPiecePages = 8;
constexpr uint64_t kPieces = MiB(256) / (kPiecePages * kPageBytes);
constexpr size_t kReads = 4000;

Result<UniqueFd> EmptyLayer() {
  SPACE_TRY(UniqueFd fd, CreateMemfd("layer"), "make layer");
  SPACE_TRY_VOID(CreateSparseLayer(fd.get(), kImageBytes), "make layer");
  return fd;
}

Result<LayeredImage> Open(const std::vector<UniqueFd>& files, bool is_writable) {
  std::vector<LayerSource> sources;
  for (const UniqueFd& file : files) {
    SPACE_TRY(UniqueFd copy, file.Duplicate(), "open");
    const bool is_top = &file == &files.back();
    sources.push_back({std::move(copy), LayerFormat::kSparse, is_writable && is_top});
  }
  return LayeredImage::Open(std::move(sources), kImageBytes);
}

void Print(std::string_view what, const std::vector<double>& values) {
  std::printf("%-28s %9.1f %9.1f %9.1f  us, %zu runs\n", what.data(), Percentile(values, 50),
              Percentile(values, 95), Percentile(values, 99), values.size());
}

Result<std::vector<UniqueFd>> MakeChain(size_t length, std::vector<double>& freezes) {
  std::mt19937 random(1);  // NOLINT: the same chain each time
  std::vector<UniqueFd> files;
  SPACE_TRY(files.emplace_back(), EmptyLayer(), "make chain");
  SPACE_TRY(LayeredImage image, Open(files, true), "make chain");
  const std::vector<std::byte> piece(kPiecePages * kPageBytes, std::byte{1});
  for (size_t place = 0; place < length; ++place) {
    for (uint64_t at = 0; at < kPieces / length; ++at) {
      const PageRange pages{random() % (kPages - kPiecePages), kPiecePages};
      SPACE_TRY_VOID(image.Write(pages, piece), "make chain");
    }
    if (place + 1 < length) {
      SPACE_TRY(files.emplace_back(), EmptyLayer(), "make chain");
      SPACE_TRY(UniqueFd top, files.back().Duplicate(), "make chain");
      StopWatch watch;
      SPACE_TRY_VOID(image.Freeze(std::move(top)), "make chain");
      freezes.push_back(watch.Lap());
    }
  }
  SPACE_TRY_VOID(image.Flush(), "make chain");
  return files;
}

Result<void> MeasureReads(const LayeredImage& image, uint64_t pages, std::string_view what) {
  std::mt19937 random(2);  // NOLINT: the same reads each time
  std::vector<std::byte> buffer(pages * kPageBytes);
  std::vector<double> reads;
  for (size_t at = 0; at < kReads; ++at) {
    const PageRange range{random() % (kPages - pages), pages};
    StopWatch watch;
    SPACE_TRY_VOID(image.Read(range, buffer), "read");
    reads.push_back(watch.Lap());
  }
  Print(what, reads);
  return {};
}

Result<void> Measure(size_t length) {
  std::printf("\nchain of %zu layers\n%-28s %9s %9s %9s\n", length, "", "p50", "p95", "p99");
  std::vector<double> freezes;
  SPACE_TRY(const std::vector<UniqueFd> files, MakeChain(length, freezes), "bench-layers");
  std::vector<double> opens;
  for (int run = 0; run < 20; ++run) {
    StopWatch watch;
    SPACE_TRY(const LayeredImage image, Open(files, false), "bench-layers");
    opens.push_back(watch.Lap());
  }
  Print("open", opens);
  SPACE_TRY(const LayeredImage image, Open(files, false), "bench-layers");
  SPACE_TRY_VOID(MeasureReads(image, 1, "read 4 KiB at random"), "bench-layers");
  SPACE_TRY_VOID(MeasureReads(image, 64, "read 256 KiB at random"), "bench-layers");
  if (!freezes.empty()) {
    Print("freeze the top", freezes);
  }
  std::vector<int> fds;
  for (const UniqueFd& file : files) {
    fds.push_back(file.get());
  }
  SPACE_TRY(UniqueFd out, EmptyLayer(), "bench-layers");
  StopWatch watch;
  SPACE_TRY_VOID(MergeLayers(fds, std::move(out), MergeBelow::kNothing), "bench-layers");
  Print("merge all", {watch.Lap()});
  return {};
}

}  // namespace
}  // namespace space

int main(int, char** argv) {
  space::bench::PrintWhere(argv[0]);
  for (const size_t length : {1, 8, 32}) {
    const auto measured = space::Measure(length);
    if (!measured) {
      std::fprintf(stderr, "bench-layers: %s\n", measured.error().message().c_str());
      return 1;
    }
  }
  return 0;
}
