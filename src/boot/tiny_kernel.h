// For tests: the smallest ELF file that LoadKernel takes, one segment at 1 MiB and the PVH note.
#pragma once

#include <elf.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace space::boot {

struct TinyKernel {
  static constexpr size_t kCodeBytes = 64;

  Elf64_Ehdr header{};
  Elf64_Phdr load{};
  Elf64_Phdr note{};
  struct {
    Elf64_Nhdr head{4, 8, 18};
    char name[4] = {'X', 'e', 'n', 0};
    uint64_t entry = 0x100000;
  } note_bytes;
  char code[kCodeBytes] = {};

  // `machine_code` is 32-bit code that runs at 1 MiB.
  explicit TinyKernel(std::string_view machine_code = "\xf4") {
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_type = ET_EXEC;
    header.e_machine = EM_X86_64;
    header.e_phoff = offsetof(TinyKernel, load);
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = 2;
    load.p_type = PT_LOAD;
    load.p_offset = offsetof(TinyKernel, code);
    load.p_paddr = 0x100000;
    load.p_filesz = sizeof(code);
    load.p_memsz = 0x1000;
    note.p_type = PT_NOTE;
    note.p_offset = offsetof(TinyKernel, note_bytes);
    note.p_filesz = sizeof(note_bytes);
    std::memcpy(code, machine_code.data(), std::min(machine_code.size(), sizeof(code)));
  }
  std::string_view bytes() const { return {reinterpret_cast<const char*>(this), sizeof(*this)}; }
};

}  // namespace space::boot
