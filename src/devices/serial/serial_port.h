// A 16550A that only sends: enough for Linux's 8250 driver to find it, print and take interrupts.
// Nothing is ever received. Registers as in the PC16550D data sheet, 8 ports from 0x3f8. Any
// thread: several vCPUs may write at once.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>

#include "base/result.h"

namespace space {

class SerialLog;
class StateReader;
class StateWriter;

class SerialPort {
 public:
  static constexpr uint16_t kBasePort = 0x3f8;
  static constexpr uint16_t kPortCount = 8;
  static constexpr uint32_t kIrq = 4;

  // `log` outlives this. `raise_irq` sends one edge on kIrq; must not call back.
  SerialPort(SerialLog& log, std::function<void()> raise_irq);

  // `reg` is the port minus kBasePort, below kPortCount. One byte each: the machine splits wider
  // accesses.
  uint8_t Read(uint16_t reg);
  void Write(uint16_t reg, uint8_t value);

  // The registers, section "serial". The vCPUs stand still.
  void Save(StateWriter& out) const;
  Result<void> Restore(StateReader& in);
  // After a restore: an interrupt that was on its way may be lost.
  void RaisePending();

 private:
  uint8_t ReadIdentification();
  uint8_t ReadModemStatus() const;
  void WriteInterruptEnable(uint8_t value);
  void Send(uint8_t value);

  SerialLog* log_;
  std::function<void()> raise_irq_;
  std::mutex mutex_;
  uint8_t interrupt_enable_ = 0;
  uint8_t fifo_control_ = 0;
  uint8_t line_control_ = 0;
  uint8_t modem_control_ = 0;
  uint8_t scratch_ = 0;
  uint8_t divisor_low_ = 12;  // 9600 baud
  uint8_t divisor_high_ = 0;
  bool is_empty_pending_ = false;  // "transmitter empty" not yet read from IIR
};

}  // namespace space
