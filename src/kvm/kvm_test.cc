// Runs small guests on the host's /dev/kvm. Without one the tests are skipped, and say so.
#include <unistd.h>

#include <chrono>

#include <gtest/gtest.h>

#include "kvm/probe.h"
#include "kvm/system.h"

namespace space {
namespace {

bool HasKvm() { return ::access("/dev/kvm", R_OK | W_OK) == 0; }

#define SPACE_NEED_KVM() \
  if (!HasKvm()) GTEST_SKIP() << "no usable /dev/kvm here: guest not run"

TEST(ProbeTest, ProbeKvmAt_SaysWhichFileIsMissing) {
  const KvmVerdict verdict = ProbeKvmAt("/nonexistent/kvm");
  EXPECT_FALSE(verdict.is_usable);
  EXPECT_NE(verdict.reason.find("/nonexistent/kvm"), std::string::npos) << verdict.reason;
}

TEST(ProbeTest, ProbeKvmAt_RefusesAFileThatIsNotKvm) {
  const KvmVerdict verdict = ProbeKvmAt("/dev/null");
  EXPECT_FALSE(verdict.is_usable);
  EXPECT_FALSE(verdict.reason.empty());
}

TEST(ProbeTest, ProbeKvm_AlwaysGivesAVerdictQuickly) {
  SPACE_NEED_KVM();
  const auto begun = std::chrono::steady_clock::now();
  const KvmVerdict verdict = ProbeKvmAt("/dev/kvm");
  const auto spent = std::chrono::steady_clock::now() - begun;
  RecordProperty("reason", verdict.reason);
  std::cout << "verdict: " << (verdict.is_usable ? "usable" : "not usable") << ": "
            << verdict.reason << " [" << verdict.details << "]\n";
  EXPECT_FALSE(verdict.reason.empty());
  EXPECT_EQ(verdict.is_usable,
            verdict.details.find("failed") == std::string::npos && verdict.guest_loop_ns > 0 &&
                verdict.guest_loop_ns <= KvmVerdict::kSlowestUsableRatio * verdict.host_loop_ns);
  // The promise is 1 s; a loaded test machine may stretch it.
  EXPECT_LT(spent, std::chrono::seconds(5));
}

TEST(SystemTest, Create_RefusesAFileThatIsNotKvm) {
  Result<UniqueFd> null = OpenReadWrite("/dev/null");
  ASSERT_TRUE(null);
  EXPECT_FALSE(kvm::System::Create(*std::move(null)));
}

// Code at address 0 of a page, real mode, no interrupt chip.
class RealModeGuest : public testing::Test {
 protected:
  void Start(std::initializer_list<uint8_t> code) {
    Result<UniqueFd> fd = OpenReadWrite("/dev/kvm");
    ASSERT_TRUE(fd);
    Result<kvm::System> system = kvm::System::Create(*std::move(fd));
    ASSERT_TRUE(system) << system.error().message();
    Result<GuestMemory> memory = GuestMemory::Create(0x10000);
    ASSERT_TRUE(memory);
    memory_ = std::make_unique<GuestMemory>(*std::move(memory));
    uint64_t at = 0x1000;
    for (const uint8_t byte : code) {
      ASSERT_TRUE(memory_->Write(GuestAddress{at++}, byte));
    }
    Result<kvm::Vm> vm = system->CreateVm();
    ASSERT_TRUE(vm);
    ASSERT_TRUE(vm->SetMemory(*memory_));
    Result<kvm::Vcpu> vcpu = vm->CreateVcpu(0);
    ASSERT_TRUE(vcpu);
    Result<kvm_sregs> special = vcpu->SpecialRegisters();
    ASSERT_TRUE(special);
    special->cs.base = 0;
    special->cs.selector = 0;
    ASSERT_TRUE(vcpu->SetSpecialRegisters(*special));
    kvm_regs registers = {};
    registers.rip = 0x1000;
    registers.rflags = 2;
    ASSERT_TRUE(vcpu->SetRegisters(registers));
    vcpu_ = std::make_unique<kvm::Vcpu>(*std::move(vcpu));
  }
  kvm::VcpuExit Run() {
    Result<kvm::VcpuExit> exit = vcpu_->Run();
    return exit ? *exit : kvm::FailureExit{exit.error().message()};
  }
  std::unique_ptr<GuestMemory> memory_;
  std::unique_ptr<kvm::Vcpu> vcpu_;
};

TEST_F(RealModeGuest, Run_ReportsHalt) {
  SPACE_NEED_KVM();
  Start({0xf4});  // hlt
  EXPECT_TRUE(std::holds_alternative<kvm::HaltExit>(Run()));
}

TEST_F(RealModeGuest, Run_ReportsPortWriteAndGivesPortReads) {
  SPACE_NEED_KVM();
  Start({0xb0, 0x5a, 0xe6, 0x42, 0xe4, 0x43, 0xe6, 0x44, 0xf4});  // out 42,5a; in 43; out 44
  kvm::VcpuExit exit = Run();
  ASSERT_TRUE(std::holds_alternative<kvm::PortExit>(exit));
  EXPECT_EQ(std::get<kvm::PortExit>(exit).port, 0x42);
  EXPECT_TRUE(std::get<kvm::PortExit>(exit).is_write);
  EXPECT_EQ(std::get<kvm::PortExit>(exit).data[0], std::byte{0x5a});
  exit = Run();
  ASSERT_TRUE(std::holds_alternative<kvm::PortExit>(exit));
  EXPECT_FALSE(std::get<kvm::PortExit>(exit).is_write);
  std::get<kvm::PortExit>(exit).data[0] = std::byte{0x77};
  exit = Run();
  ASSERT_TRUE(std::holds_alternative<kvm::PortExit>(exit));
  EXPECT_EQ(std::get<kvm::PortExit>(exit).data[0], std::byte{0x77});
}

TEST_F(RealModeGuest, Run_ReportsMmioOutsideMemory) {
  SPACE_NEED_KVM();
  // mov ax,0x2000; mov ds,ax; mov byte [0],0x11: physical 0x20000 has no memory
  Start({0xb8, 0x00, 0x20, 0x8e, 0xd8, 0xc6, 0x06, 0x00, 0x00, 0x11, 0xf4});
  const kvm::VcpuExit exit = Run();
  ASSERT_TRUE(std::holds_alternative<kvm::MmioExit>(exit));
  EXPECT_EQ(std::get<kvm::MmioExit>(exit).at, GuestAddress{0x20000});
  EXPECT_TRUE(std::get<kvm::MmioExit>(exit).is_write);
  EXPECT_EQ(std::get<kvm::MmioExit>(exit).data[0], std::byte{0x11});
}

}  // namespace
}  // namespace space
