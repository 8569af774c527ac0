#include <unistd.h>

#include <functional>
#include <numeric>

#include <gtest/gtest.h>

#include "base/units.h"
#include "boot/acpi.h"
#include "boot/aml.h"
#include "boot/command_line.h"
#include "boot/kernel.h"
#include "boot/layout.h"
#include "boot/pvh.h"
#include "boot/tiny_kernel.h"

namespace space::boot {
namespace {

// Tests damage one field of it.
using Image = TinyKernel;

UniqueFd FileOf(std::string_view bytes) {
  Result<UniqueFd> fd = CreateMemfd("test");
  EXPECT_TRUE(fd);
  EXPECT_TRUE(WriteFull(fd->get(), bytes));
  return *std::move(fd);
}

UniqueFd FileOf(const Image& image) { return FileOf(image.bytes()); }

GuestMemory Memory(uint64_t size_bytes = MiB(64)) {
  Result<GuestMemory> memory = GuestMemory::Create(size_bytes);
  EXPECT_TRUE(memory);
  return *std::move(memory);
}

TEST(KernelTest, LoadKernel_PutsSegmentsWhereTheyBelong) {
  const GuestMemory memory = Memory();
  const Result<LoadedKernel> kernel = LoadKernel(memory, FileOf(Image()));
  ASSERT_TRUE(kernel) << kernel.error().message();
  EXPECT_EQ(kernel->pvh_entry, GuestAddress{0x100000});
  EXPECT_EQ(kernel->end, GuestAddress{0x101000});
  EXPECT_EQ(*memory.Read<uint8_t>(GuestAddress{0x100000}), 0xf4);
}

struct Damage {
  const char* name;
  std::function<void(Image&)> apply;
  const char* expected;  // part of the message
};

class HostileKernel : public testing::TestWithParam<Damage> {};

TEST_P(HostileKernel, LoadKernel_Refuses) {
  Image image;
  GetParam().apply(image);
  const Result<LoadedKernel> kernel = LoadKernel(Memory(), FileOf(image));
  ASSERT_FALSE(kernel);
  EXPECT_EQ(kernel.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(kernel.error().message().find("kernel"), std::string::npos);
  EXPECT_NE(kernel.error().message().find(GetParam().expected), std::string::npos)
      << kernel.error().message();
}

INSTANTIATE_TEST_SUITE_P(
    Fields, HostileKernel,
    testing::Values(
        Damage{"Magic", [](Image& i) { i.header.e_ident[0] = 'M'; }, "not an ELF file"},
        Damage{"Class", [](Image& i) { i.header.e_ident[EI_CLASS] = ELFCLASS32; }, "x86-64"},
        Damage{"Machine", [](Image& i) { i.header.e_machine = EM_AARCH64; }, "x86-64"},
        Damage{"Type", [](Image& i) { i.header.e_type = ET_REL; }, "executable"},
        Damage{"NoHeaders", [](Image& i) { i.header.e_phnum = 0; }, "program headers"},
        Damage{"ManyHeaders", [](Image& i) { i.header.e_phnum = 0xffff; }, "program headers"},
        Damage{"HeaderSize", [](Image& i) { i.header.e_phentsize = 1; }, "program headers"},
        Damage{"HeaderOffset", [](Image& i) { i.header.e_phoff = ~0ull; }, "cut off"},
        Damage{"FileSizeHuge", [](Image& i) { i.load.p_filesz = i.load.p_memsz = ~0ull; }, "file"},
        Damage{"FileLarger", [](Image& i) { i.load.p_memsz = 1; }, "file"},
        Damage{"OffsetHuge", [](Image& i) { i.load.p_offset = ~0ull - 4; }, "file"},
        Damage{"MemoryHuge", [](Image& i) { i.load.p_memsz = 1ull << 40; }, "does not fit"},
        Damage{"MemoryWraps", [](Image& i) { i.load.p_paddr = ~0ull - 8; }, "does not fit"},
        Damage{"Low", [](Image& i) { i.load.p_paddr = 0x6000; }, "below 1 MiB"},
        Damage{"Hole", [](Image& i) { i.load.p_paddr = 0xd0000000; }, "does not fit"},
        Damage{"NoNote", [](Image& i) { i.note.p_type = PT_NULL; }, "PVH"},
        Damage{"NoteHuge", [](Image& i) { i.note.p_filesz = 1ull << 32; }, "note"},
        Damage{"NoteNameHuge", [](Image& i) { i.note_bytes.head.n_namesz = ~0u; }, "PVH"},
        Damage{"NoteValueHuge", [](Image& i) { i.note_bytes.head.n_descsz = ~0u; }, "PVH"},
        Damage{"NoteValueOdd", [](Image& i) { i.note_bytes.head.n_descsz = 5; }, "PVH"},
        Damage{"EntryOutside", [](Image& i) { i.note_bytes.entry = 0x200000; }, "entry point"},
        Damage{"NoSegment", [](Image& i) { i.load.p_type = PT_NULL; }, "entry point"}),
    [](const auto& param) { return param.param.name; });

TEST(KernelTest, LoadKernel_RefusesEveryTruncation) {
  const Image image;
  const GuestMemory memory = Memory();
  const std::string whole(image.bytes());
  for (size_t size = 0; size + 1 < whole.size(); size += 3) {
    EXPECT_FALSE(LoadKernel(memory, FileOf(whole.substr(0, size)))) << size;
  }
}

LoadedKernel KernelAt(uint64_t start, uint64_t end) {
  return {GuestAddress{start}, GuestAddress{start}, GuestAddress{end}};
}

TEST(InitramfsTest, LoadInitramfs_EndsWithMemory) {
  const GuestMemory memory = Memory();
  const Result<LoadedInitramfs> loaded =
      LoadInitramfs(memory, FileOf(std::string(5000, 'x')), KernelAt(MiB(1), MiB(2)));
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->start, GuestAddress{MiB(64) - 8192});
  EXPECT_EQ(*memory.Read<char>(loaded->start + 4999), 'x');
}

TEST(InitramfsTest, LoadInitramfs_GoesBelowAKernelThatFillsTheMemory) {
  const GuestMemory memory = Memory();
  const Result<LoadedInitramfs> loaded =
      LoadInitramfs(memory, FileOf(std::string(MiB(3), 'x')), KernelAt(MiB(16), MiB(62)));
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->start, GuestAddress{MiB(13)});
}

TEST(InitramfsTest, LoadInitramfs_RefusesWhatDoesNotFit) {
  const GuestMemory memory = Memory();
  EXPECT_FALSE(LoadInitramfs(memory, FileOf(std::string()), KernelAt(MiB(1), MiB(2))));
  const UniqueFd one = FileOf(std::string(MiB(1) + 1, 'x'));
  EXPECT_FALSE(LoadInitramfs(memory, one, KernelAt(MiB(2), MiB(64) - 4096)));
  const UniqueFd huge = FileOf(std::string("x"));
  ASSERT_EQ(::ftruncate(huge.get(), static_cast<off_t>(GiB(8))), 0);
  EXPECT_FALSE(LoadInitramfs(memory, huge, KernelAt(MiB(1), MiB(2))));
}

TEST(PvhTest, WriteStartInfo_DescribesMemoryOnBothSidesOfTheHole) {
  const GuestMemory memory = Memory(GiB(4));
  ASSERT_TRUE(WriteStartInfo(memory, {GuestAddress{0x5000000}, 77}, "a=b"));
  EXPECT_EQ(*memory.Read<uint32_t>(kStartInfo), 0x336ec578u);
  EXPECT_EQ(*memory.Read<uint64_t>(kStartInfo + 24), kCommandLine.value);
  EXPECT_EQ(*memory.Read<uint32_t>(kStartInfo + 48), 4u);  // low, reserved, to 3 GiB, from 4 GiB
  EXPECT_EQ(*memory.Read<uint64_t>(kMemoryMap + 3 * 24), GiB(4));
  EXPECT_EQ(*memory.Read<uint64_t>(kMemoryMap + 3 * 24 + 8), GiB(1));
  EXPECT_EQ(*memory.Read<uint64_t>(kModuleList + 8), 77u);
  EXPECT_EQ(*memory.Read<uint32_t>(kCommandLine), 0x00623d61u);
}

TEST(PvhTest, WriteStartInfo_RefusesBadCommandLines) {
  const GuestMemory memory = Memory();
  EXPECT_FALSE(WriteStartInfo(memory, {GuestAddress{0x200000}, 1}, std::string(4096, 'a')));
  EXPECT_FALSE(WriteStartInfo(memory, {GuestAddress{0x200000}, 1}, std::string("a\0b", 3)));
}

uint8_t SumOf(const GuestMemory& memory, GuestAddress at, uint64_t size) {
  const auto bytes = *memory.Slice(at, size);
  return std::accumulate(bytes.begin(), bytes.end(), uint8_t{0}, [](uint8_t sum, std::byte byte) {
    return static_cast<uint8_t>(sum + static_cast<uint8_t>(byte));
  });
}

TEST(AcpiTest, WriteAcpiTables_LinksTablesWithRightChecksums) {
  const GuestMemory memory = Memory();
  AcpiConfig config{32, {}, true};
  for (uint32_t index = 0; index < 19; ++index) {
    config.devices.push_back({0xd0000000 + index * 0x1000, 0x1000, 5 + index});
  }
  ASSERT_TRUE(WriteAcpiTables(memory, config));
  EXPECT_EQ(SumOf(memory, kRsdp, 20), 0);
  EXPECT_EQ(SumOf(memory, kRsdp, 36), 0);
  const GuestAddress xsdt{*memory.Read<uint64_t>(kRsdp + 24)};
  ASSERT_EQ(*memory.Read<uint32_t>(xsdt + 4), 36u + 16u);
  const GuestAddress fadt{*memory.Read<uint64_t>(xsdt + 36)};
  const GuestAddress madt{*memory.Read<uint64_t>(xsdt + 44)};
  const GuestAddress dsdt{*memory.Read<uint64_t>(fadt + 140)};
  for (const GuestAddress table : {xsdt, fadt, madt, dsdt}) {
    EXPECT_EQ(SumOf(memory, table, *memory.Read<uint32_t>(table + 4)), 0);
  }
  EXPECT_EQ(*memory.Read<uint32_t>(fadt), 0x50434146u);  // FACP
  EXPECT_EQ(*memory.Read<uint32_t>(fadt + 4), 276u);
  EXPECT_EQ(*memory.Read<uint64_t>(fadt + 116 + 4), kResetPort);
  EXPECT_EQ(*memory.Read<uint8_t>(fadt + 128), kResetValue);
  EXPECT_EQ(*memory.Read<uint32_t>(madt + 4), 36u + 8 + 12 + 32 * 8);
  EXPECT_EQ(*memory.Read<uint8_t>(madt + 36 + 8 + 12 + 31 * 8 + 3), 31);
}

TEST(AmlTest, Lengths_FollowTheSpecification) {
  // 6.1.5 of the specification gives PNP0C0F... and every DSDT dump PNP0501 as 41 D0 05 01.
  EXPECT_EQ(aml::EisaId("PNP0501"), std::string("\x0c\x41\xd0\x05\x01"));
  EXPECT_EQ(aml::Integer(0), std::string(1, '\0'));
  EXPECT_EQ(aml::Integer(0x1234), std::string("\x0b\x34\x12"));
  EXPECT_EQ(aml::Scope("AB", "x").substr(0, 6), std::string("\x10\x06"
                                                            "AB__"));
  // 58 bytes of body and 4 of name with 1 of length are 63, the most for one byte.
  EXPECT_EQ(static_cast<uint8_t>(aml::Scope("ABCD", std::string(58, 'x'))[1]), 0x3f);
  const std::string two = aml::Scope("ABCD", std::string(59, 'x'));
  EXPECT_EQ(static_cast<uint8_t>(two[1]), 0x40 | (65 & 0xf));
  EXPECT_EQ(static_cast<uint8_t>(two[2]), 65 >> 4);
  const std::string three = aml::Scope("ABCD", std::string(5000, 'x'));
  EXPECT_EQ(static_cast<uint8_t>(three[1]) >> 6, 2);
  const size_t length = (static_cast<uint8_t>(three[1]) & 0xfu) |
                        static_cast<size_t>(static_cast<uint8_t>(three[2])) << 4 |
                        static_cast<size_t>(static_cast<uint8_t>(three[3])) << 12;
  EXPECT_EQ(length + 1, three.size());
}

TEST(CommandLineTest, DefaultCommandLine_SaysHowToRestartAndPrint) {
  EXPECT_NE(DefaultCommandLine(true).find("console=ttyS0"), std::string::npos);
  EXPECT_EQ(DefaultCommandLine(false).find("console"), std::string::npos);
  EXPECT_NE(DefaultCommandLine(false).find("reboot=a,panic_warm"), std::string::npos);
}

}  // namespace
}  // namespace space::boot
