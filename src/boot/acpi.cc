#include "boot/acpi.h"

#include <array>
#include <cstring>
#include <numeric>
#include <string>

#include "base/bytes.h"
#include "boot/aml.h"
#include "boot/layout.h"

namespace space::boot {
namespace {

constexpr std::string_view kOemId = "SPACE ";         // 6 bytes
constexpr std::string_view kOemTableId = "SPACEVMM";  // 8 bytes
constexpr uint16_t kComPort = 0x3f8;
constexpr uint32_t kComInterrupt = 4;

struct [[gnu::packed]] TableHeader {
  std::array<char, 4> signature{};
  uint32_t length = 0;
  uint8_t revision = 0;
  uint8_t checksum = 0;
  std::array<char, 6> oem_id{};
  std::array<char, 8> oem_table_id{};
  uint32_t oem_revision = 1;
  std::array<char, 4> creator_id{'S', 'P', 'C', 'E'};
  uint32_t creator_revision = 1;
};
static_assert(sizeof(TableHeader) == 36);

// Generic address structure, 5.2.3.2.
struct [[gnu::packed]] Address {
  uint8_t space = 0;  // 1: I/O ports
  uint8_t bit_width = 0;
  uint8_t bit_offset = 0;
  uint8_t access_size = 0;  // 1: byte
  uint64_t address = 0;
};
static_assert(sizeof(Address) == 12);

constexpr Address BytePort(uint16_t port) { return {1, 8, 0, 1, port}; }

// 5.2.9, without the header. The register blocks of full ACPI hardware stay zero.
struct [[gnu::packed]] FadtBody {
  uint32_t firmware_control = 0;
  uint32_t dsdt = 0;
  std::array<uint8_t, 65> legacy_blocks{};
  uint16_t boot_architecture = 0;
  uint8_t reserved = 0;
  uint32_t flags = 0;
  Address reset_register;
  uint8_t reset_value = 0;
  uint16_t arm_boot_architecture = 0;
  uint8_t minor_revision = 4;
  uint64_t x_firmware_control = 0;
  uint64_t x_dsdt = 0;
  std::array<uint8_t, 8 * sizeof(Address)> x_legacy_blocks{};
  Address sleep_control;
  Address sleep_status;
  uint64_t hypervisor = 0;
};
static_assert(sizeof(TableHeader) + offsetof(FadtBody, boot_architecture) == 109);
static_assert(sizeof(TableHeader) + offsetof(FadtBody, flags) == 112);
static_assert(sizeof(TableHeader) + offsetof(FadtBody, x_dsdt) == 140);
static_assert(sizeof(TableHeader) + offsetof(FadtBody, sleep_control) == 244);
static_assert(sizeof(TableHeader) + sizeof(FadtBody) == 276);

constexpr uint16_t kNoVga = 1 << 2;
constexpr uint16_t kNoCmosClock = 1 << 5;
constexpr uint32_t kWbinvdWorks = 1 << 0;
constexpr uint32_t kNoFixedPowerButton = 1 << 4;
constexpr uint32_t kNoFixedSleepButton = 1 << 5;
constexpr uint32_t kHasResetRegister = 1 << 10;
constexpr uint32_t kHardwareReduced = 1 << 20;

template <class T>
void PutStruct(ByteWriter& out, const T& value) {
  out.PutRaw({reinterpret_cast<const char*>(&value), sizeof(value)});
}

uint8_t ChecksumOf(std::string_view bytes) {
  const auto sum = std::accumulate(bytes.begin(), bytes.end(), uint8_t{0}, [](uint8_t a, char b) {
    return static_cast<uint8_t>(a + static_cast<uint8_t>(b));
  });
  return static_cast<uint8_t>(0x100 - sum);
}

std::string MakeTable(std::string_view signature, uint8_t revision, std::string_view body) {
  TableHeader header;
  std::memcpy(header.signature.data(), signature.data(), header.signature.size());
  std::memcpy(header.oem_id.data(), kOemId.data(), header.oem_id.size());
  std::memcpy(header.oem_table_id.data(), kOemTableId.data(), header.oem_table_id.size());
  header.length = static_cast<uint32_t>(sizeof(header) + body.size());
  header.revision = revision;
  ByteWriter out;
  PutStruct(out, header);
  out.PutRaw(body);
  std::string table = std::move(out).Take();
  table[offsetof(TableHeader, checksum)] = static_cast<char>(ChecksumOf(table));
  return table;
}

// Two hexadecimal digits behind `prefix`, as AML names are four characters of A-Z and 0-9.
std::string DeviceName(size_t index) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return std::string("V0") + kDigits[index / 16 % 16] + kDigits[index % 16];
}

std::string MakeDsdt(const AcpiConfig& config) {
  std::string devices;
  for (size_t index = 0; index < config.devices.size(); ++index) {
    const AcpiDevice& device = config.devices[index];
    devices += aml::Device(
        DeviceName(index),
        aml::Name("_HID", aml::String("LNRO0005")) +
            aml::Name("_UID", aml::Integer(static_cast<uint32_t>(index))) +
            aml::Name("_CCA", aml::Integer(1)) +
            aml::Name("_CRS", aml::Resources(aml::Memory32(device.start, device.size_bytes) +
                                             aml::Interrupt(device.gsi))));
  }
  if (config.has_serial) {
    devices += aml::Device(
        "COM1", aml::Name("_HID", aml::EisaId("PNP0501")) + aml::Name("_UID", aml::Integer(0)) +
                    aml::Name("_CRS", aml::Resources(aml::Ports(kComPort, 8) +
                                                     aml::Interrupt(kComInterrupt))));
  }
  const std::string off = aml::Integer(kSleepTypeOff) + aml::Integer(0);
  return MakeTable("DSDT", 2,
                   aml::Scope("\\_SB", devices) + aml::Name("\\_S5", aml::Package(off, 2)));
}

std::string MakeFadt(GuestAddress dsdt) {
  FadtBody body;
  body.dsdt = static_cast<uint32_t>(dsdt.value);
  body.x_dsdt = dsdt.value;
  body.boot_architecture = kNoVga | kNoCmosClock;
  body.flags = kWbinvdWorks | kNoFixedPowerButton | kNoFixedSleepButton | kHasResetRegister |
               kHardwareReduced;
  body.reset_register = BytePort(kResetPort);
  body.reset_value = kResetValue;
  body.sleep_control = BytePort(kSleepControlPort);
  body.sleep_status = BytePort(kSleepStatusPort);
  ByteWriter out;
  PutStruct(out, body);
  return MakeTable("FACP", 6, out.bytes());
}

// 5.2.12.2 and 5.2.12.3.
std::string MakeMadt(uint32_t vcpus) {
  ByteWriter out;
  out.Put(kLocalApicAddress);
  out.Put(uint32_t{0});  // no PC-AT interrupt controllers
  out.Put(uint8_t{1});
  out.Put(uint8_t{12});
  out.Put(uint16_t{0});  // I/O APIC id
  out.Put(kIoApicAddress);
  out.Put(uint32_t{0});  // first GSI
  for (uint32_t id = 0; id < vcpus; ++id) {
    out.Put(uint8_t{0});
    out.Put(uint8_t{8});
    out.Put(static_cast<uint8_t>(id));
    out.Put(static_cast<uint8_t>(id));
    out.Put(uint32_t{1});  // enabled
  }
  return MakeTable("APIC", 5, out.bytes());
}

std::string MakeRsdp(GuestAddress xsdt) {
  struct [[gnu::packed]] Rsdp {
    std::array<char, 8> signature{'R', 'S', 'D', ' ', 'P', 'T', 'R', ' '};
    uint8_t checksum = 0;
    std::array<char, 6> oem_id{};
    uint8_t revision = 2;
    uint32_t rsdt = 0;
    uint32_t length = 36;
    uint64_t xsdt = 0;
    uint8_t extended_checksum = 0;
    std::array<uint8_t, 3> reserved{};
  } rsdp;
  static_assert(sizeof(rsdp) == 36);
  constexpr size_t kFirstPart = 20;
  std::memcpy(rsdp.oem_id.data(), kOemId.data(), rsdp.oem_id.size());
  rsdp.xsdt = xsdt.value;
  const auto text = [&] { return std::string(reinterpret_cast<const char*>(&rsdp), sizeof(rsdp)); };
  rsdp.checksum = ChecksumOf(text().substr(0, kFirstPart));
  rsdp.extended_checksum = ChecksumOf(text());
  return text();
}

// Places tables one behind the other below 1 MiB.
class TableArea {
 public:
  explicit TableArea(const GuestMemory& memory) : memory_(memory) {}
  Result<GuestAddress> Add(std::string_view table) {
    const GuestAddress at = next_;
    next_ = GuestAddress{(at.value + table.size() + 15) & ~uint64_t{15}};
    if (next_ > kKernelMinimum) {
      return Fail(ErrorCode::kExhausted, "ACPI tables do not fit below 1 MiB");
    }
    SPACE_TRY_VOID(memory_.WriteBytes(at, std::as_bytes(std::span(table))), "write ACPI table");
    return at;
  }

 private:
  const GuestMemory& memory_;
  GuestAddress next_ = kAcpiTables;
};

}  // namespace

Result<void> WriteAcpiTables(const GuestMemory& memory, const AcpiConfig& config) {
  TableArea area(memory);
  SPACE_TRY(const GuestAddress dsdt, area.Add(MakeDsdt(config)), "DSDT");
  SPACE_TRY(const GuestAddress fadt, area.Add(MakeFadt(dsdt)), "FADT");
  SPACE_TRY(const GuestAddress madt, area.Add(MakeMadt(config.vcpus)), "MADT");
  ByteWriter entries;
  entries.Put(fadt.value);
  entries.Put(madt.value);
  SPACE_TRY(const GuestAddress xsdt, area.Add(MakeTable("XSDT", 1, entries.bytes())), "XSDT");
  const std::string rsdp = MakeRsdp(xsdt);
  return memory.WriteBytes(kRsdp, std::as_bytes(std::span(rsdp)));
}

}  // namespace space::boot
