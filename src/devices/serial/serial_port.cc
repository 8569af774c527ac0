#include "devices/serial/serial_port.h"

#include <array>

#include "base/bytes.h"
#include "devices/serial/serial_log.h"
#include "state/state.h"

namespace space {
namespace {

// PC16550D data sheet, table II; the first two are the divisor while DLAB is set.
enum Register : uint16_t {
  kData = 0,
  kInterruptEnable = 1,
  kIdentificationOrFifo = 2,
  kLineControl = 3,
  kModemControl = 4,
  kLineStatus = 5,
  kModemStatus = 6,
  kScratch = 7,
};

constexpr uint16_t kStateVersion = 1;

constexpr uint8_t kDivisorLatch = 0x80;     // LCR
constexpr uint8_t kEmptyInterrupt = 0x02;   // IER: transmitter empty
constexpr uint8_t kNothingPending = 0x01;   // IIR
constexpr uint8_t kEmptyPending = 0x02;     // IIR
constexpr uint8_t kFifosEnabled = 0xc0;     // IIR
constexpr uint8_t kEnableFifos = 0x01;      // FCR
constexpr uint8_t kLoopback = 0x10;         // MCR
constexpr uint8_t kTransmitterIdle = 0x60;  // LSR: holding and shift register empty
constexpr uint8_t kLinePresent = 0xb0;      // MSR: carrier, data set ready, clear to send

}  // namespace

SerialPort::SerialPort(SerialLog& log, std::function<void()> raise_irq)
    : log_(&log), raise_irq_(std::move(raise_irq)) {}

uint8_t SerialPort::Read(uint16_t reg) {
  const std::lock_guard lock(mutex_);
  const bool is_divisor = (line_control_ & kDivisorLatch) != 0;
  switch (reg) {
    case kData:
      return is_divisor ? divisor_low_ : 0;  // nothing was received
    case kInterruptEnable:
      return is_divisor ? divisor_high_ : interrupt_enable_;
    case kIdentificationOrFifo:
      return ReadIdentification();
    case kLineControl:
      return line_control_;
    case kModemControl:
      return modem_control_;
    case kLineStatus:
      return kTransmitterIdle;
    case kModemStatus:
      return ReadModemStatus();
    case kScratch:
      return scratch_;
    default:
      return 0xff;
  }
}

// Reading it takes the interrupt back.
uint8_t SerialPort::ReadIdentification() {
  const uint8_t fifos = (fifo_control_ & kEnableFifos) != 0 ? kFifosEnabled : 0;
  if (!is_empty_pending_) {
    return fifos | kNothingPending;
  }
  is_empty_pending_ = false;
  return fifos | kEmptyPending;
}

// In loopback the control outputs come back as status inputs; Linux looks for a UART this way.
uint8_t SerialPort::ReadModemStatus() const {
  if ((modem_control_ & kLoopback) == 0) {
    return kLinePresent;
  }
  const int control = modem_control_;
  const int clear_to_send = (control & 0x02) << 3;
  const int data_set_ready = (control & 0x01) << 5;
  const int ring_and_carrier = (control & 0x0c) << 4;
  return static_cast<uint8_t>(clear_to_send | data_set_ready | ring_and_carrier);
}

void SerialPort::Write(uint16_t reg, uint8_t value) {
  const std::lock_guard lock(mutex_);
  const bool is_divisor = (line_control_ & kDivisorLatch) != 0;
  switch (reg) {
    case kData:
      return is_divisor ? void(divisor_low_ = value) : Send(value);
    case kInterruptEnable:
      return is_divisor ? void(divisor_high_ = value) : WriteInterruptEnable(value);
    case kIdentificationOrFifo:
      fifo_control_ = value;
      return;
    case kLineControl:
      line_control_ = value;
      return;
    case kModemControl:
      modem_control_ = value & 0x1f;
      return;
    case kScratch:
      scratch_ = value;
      return;
    default:
      return;  // status registers
  }
}

// The transmitter is always empty, so enabling its interrupt raises it at once.
void SerialPort::WriteInterruptEnable(uint8_t value) {
  const bool was_enabled = (interrupt_enable_ & kEmptyInterrupt) != 0;
  interrupt_enable_ = value & 0x0f;
  const bool is_enabled = (interrupt_enable_ & kEmptyInterrupt) != 0;
  if (!is_enabled) {
    is_empty_pending_ = false;
  } else if (!was_enabled) {
    is_empty_pending_ = true;
    raise_irq_();
  }
}

void SerialPort::Send(uint8_t value) {
  if ((modem_control_ & kLoopback) == 0) {
    log_->Put(static_cast<char>(value));
  }
  if ((interrupt_enable_ & kEmptyInterrupt) != 0) {
    is_empty_pending_ = true;
    raise_irq_();
  }
}

void SerialPort::Save(StateWriter& out) const {
  ByteWriter body;
  for (const uint8_t value : {interrupt_enable_, fifo_control_, line_control_, modem_control_,
                              scratch_, divisor_low_, divisor_high_}) {
    body.Put(value);
  }
  body.Put(static_cast<uint8_t>(is_empty_pending_));
  out.Add("serial", kStateVersion, body.bytes());
}

Result<void> SerialPort::Restore(StateReader& in) {
  SPACE_TRY(const StateSection section, in.Require("serial", kStateVersion), "restore serial port");
  ByteReader body(section.body);
  const std::lock_guard lock(mutex_);
  const std::array<uint8_t*, 7> registers = {&interrupt_enable_, &fifo_control_, &line_control_,
                                             &modem_control_,    &scratch_,      &divisor_low_,
                                             &divisor_high_};
  for (uint8_t* const value : registers) {
    SPACE_TRY(*value, body.Get<uint8_t>(), "restore serial port");
  }
  SPACE_TRY(const uint8_t is_pending, body.Get<uint8_t>(), "restore serial port");
  is_empty_pending_ = is_pending == 1;
  // As the guest could have written them.
  interrupt_enable_ &= 0x0f;
  modem_control_ &= 0x1f;
  return body.Finish();
}

void SerialPort::RaisePending() {
  const std::lock_guard lock(mutex_);
  if (is_empty_pending_) {
    raise_irq_();
  }
}

}  // namespace space
