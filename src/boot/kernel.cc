#include "boot/kernel.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "base/units.h"
#include "boot/layout.h"

namespace space::boot {
namespace {

constexpr uint32_t kPvhNoteType = 18;
constexpr std::string_view kPvhNoteName("Xen\0", 4);
// Limits against files that claim absurd tables; vmlinux has 5 headers and a note of some 500
// bytes.
constexpr size_t kMaxProgramHeaders = 64;
constexpr uint64_t kMaxNoteBytes = 64 << 10;

struct Elf {
  uint64_t file_bytes = 0;
  std::vector<Elf64_Phdr> segments;
};

tl::unexpected<Error> Refuse(std::string_view why) {
  return Fail(ErrorCode::kInvalidArgument, "kernel " + std::string(why));
}

bool IsInside(uint64_t offset, uint64_t length, uint64_t whole) {
  return offset <= whole && length <= whole - offset;
}

Result<Elf> ReadHeaders(const UniqueFd& image) {
  SPACE_TRY(const uint64_t file_bytes, FileSize(image.get()), "kernel");
  Elf64_Ehdr header = {};
  if (file_bytes < sizeof(header)) {
    return Refuse("is not an ELF file: too short");
  }
  SPACE_TRY_VOID(PreadFull(image.get(), std::as_writable_bytes(std::span(&header, 1)), 0),
                 "read kernel header");
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    return Refuse("is not an ELF file (an uncompressed vmlinux is needed, not a bzImage)");
  }
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_machine != EM_X86_64) {
    return Refuse("is not for x86-64");
  }
  if (header.e_type != ET_EXEC && header.e_type != ET_DYN) {
    return Refuse("is an ELF file, but not an executable");
  }
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum == 0 ||
      header.e_phnum > kMaxProgramHeaders) {
    return Refuse("has no usable program headers");
  }
  Elf elf{file_bytes, std::vector<Elf64_Phdr>(header.e_phnum)};
  const auto table = std::as_writable_bytes(std::span(elf.segments));
  if (!IsInside(header.e_phoff, table.size(), file_bytes)) {
    return Refuse("is cut off: program headers lie behind its end");
  }
  SPACE_TRY_VOID(PreadFull(image.get(), table, header.e_phoff), "read kernel program headers");
  return elf;
}

// The entry point in one PT_NOTE's bytes; nullopt when the note is not there.
std::optional<uint64_t> FindPvhEntry(std::span<const std::byte> notes) {
  size_t at = 0;
  while (notes.size() - at >= sizeof(Elf64_Nhdr)) {
    Elf64_Nhdr head;
    std::memcpy(&head, notes.data() + at, sizeof(head));
    at += sizeof(head);
    const uint64_t name_bytes = (uint64_t{head.n_namesz} + 3) & ~uint64_t{3};
    const uint64_t value_bytes = (uint64_t{head.n_descsz} + 3) & ~uint64_t{3};
    const size_t left = notes.size() - at;
    if (name_bytes > left || head.n_descsz > left - name_bytes) {
      return std::nullopt;
    }
    const auto* name = reinterpret_cast<const char*>(notes.data() + at);
    const bool is_pvh =
        head.n_type == kPvhNoteType && std::string_view(name, head.n_namesz) == kPvhNoteName;
    if (is_pvh && (head.n_descsz == 4 || head.n_descsz == 8)) {
      uint64_t entry = 0;
      std::memcpy(&entry, notes.data() + at + name_bytes, head.n_descsz);
      return entry;
    }
    at += name_bytes;
    at += std::min<uint64_t>(value_bytes, notes.size() - at);
  }
  return std::nullopt;
}

Result<uint64_t> ReadPvhEntry(const UniqueFd& image, const Elf& elf) {
  for (const Elf64_Phdr& segment : elf.segments) {
    if (segment.p_type != PT_NOTE) {
      continue;
    }
    if (segment.p_filesz > kMaxNoteBytes ||
        !IsInside(segment.p_offset, segment.p_filesz, elf.file_bytes)) {
      return Refuse("has a note that leaves the file");
    }
    std::vector<std::byte> notes(segment.p_filesz);
    SPACE_TRY_VOID(PreadFull(image.get(), notes, segment.p_offset), "read kernel notes");
    if (const std::optional<uint64_t> entry = FindPvhEntry(notes)) {
      return *entry;
    }
  }
  return Refuse("has no PVH entry point (CONFIG_PVH)");
}

Result<uint64_t> LoadSegment(const GuestMemory& memory, const UniqueFd& image,
                             const Elf64_Phdr& segment, uint64_t file_bytes) {
  if (segment.p_filesz > segment.p_memsz ||
      !IsInside(segment.p_offset, segment.p_filesz, file_bytes)) {
    return Refuse("is cut off or damaged: a segment leaves the file");
  }
  if (segment.p_paddr < kKernelMinimum.value) {
    return Refuse("wants to be loaded below 1 MiB");
  }
  const Result<std::span<std::byte>> room =
      memory.Slice(GuestAddress{segment.p_paddr}, segment.p_memsz);
  if (!room) {
    return Refuse("does not fit into the VM's memory of " + FormatSize(memory.size_bytes()));
  }
  // The rest of the segment is zero already: fresh memory.
  SPACE_TRY_VOID(PreadFull(image.get(), room->first(segment.p_filesz), segment.p_offset),
                 "read kernel segment");
  return segment.p_paddr + segment.p_memsz;
}

}  // namespace

Result<LoadedKernel> LoadKernel(const GuestMemory& memory, const UniqueFd& image) {
  SPACE_TRY(const Elf elf, ReadHeaders(image), "load kernel");
  SPACE_TRY(const uint64_t entry, ReadPvhEntry(image, elf), "load kernel");
  LoadedKernel kernel{GuestAddress{entry}, GuestAddress{~uint64_t{0}}, kKernelMinimum};
  bool is_entry_loaded = false;
  for (const Elf64_Phdr& segment : elf.segments) {
    if (segment.p_type != PT_LOAD || segment.p_memsz == 0) {
      continue;
    }
    SPACE_TRY(const uint64_t end, LoadSegment(memory, image, segment, elf.file_bytes),
              "load kernel");
    kernel.start = std::min(kernel.start, GuestAddress{segment.p_paddr});
    kernel.end = std::max(kernel.end, GuestAddress{end});
    is_entry_loaded = is_entry_loaded || (entry >= segment.p_paddr && entry < end);
  }
  if (!is_entry_loaded) {
    return Refuse("has its entry point outside its segments");
  }
  return kernel;
}

Result<LoadedInitramfs> LoadInitramfs(const GuestMemory& memory, const UniqueFd& image,
                                      const LoadedKernel& kernel) {
  SPACE_TRY(const uint64_t size_bytes, FileSize(image.get()), "initramfs");
  if (size_bytes == 0) {
    return Fail(ErrorCode::kInvalidArgument, "initramfs is empty");
  }
  const uint64_t low_end = memory.regions().front().bytes.size();
  // `size_bytes` before `end`, down to a page; nothing when that is below `least`.
  const auto place = [&](uint64_t least, uint64_t end) -> std::optional<GuestAddress> {
    if (end < least || end - least < size_bytes) {
      return std::nullopt;
    }
    const GuestAddress start{(end - size_bytes) & ~(kPageBytes - 1)};
    return start.value >= least ? std::optional(start) : std::nullopt;
  };
  std::optional<GuestAddress> start = place(kernel.end.value, low_end);
  if (!start) {
    start = place(kKernelMinimum.value, std::min(kernel.start.value, low_end));
  }
  if (!start) {
    return Fail(ErrorCode::kInvalidArgument, "initramfs of " + FormatSize(size_bytes) +
                                                 " and kernel do not fit into the VM's memory of " +
                                                 FormatSize(memory.size_bytes()));
  }
  SPACE_TRY(const std::span<std::byte> room, memory.Slice(*start, size_bytes), "initramfs");
  SPACE_TRY_VOID(PreadFull(image.get(), room, 0), "read initramfs");
  return LoadedInitramfs{*start, size_bytes};
}

}  // namespace space::boot
