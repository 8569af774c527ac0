// A hostile vsock driver: packets of any kind to known and unknown streams, buffers of any size,
// while the host's ends are written, read and closed.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "devices/vsock/fake_guest.h"
#include "input.h"

namespace {

using namespace space;

class Session {
 public:
  Session() { guest_.BringUp(); }

  // False when the device is broken, as the transport would then reset it.
  bool Step(fuzz::Input& input) {
    const auto action = input.Take<uint8_t>();
    switch (action % 8) {
      case 0:
        return Connect();
      case 1:
        return WriteOrClose(action, input);
      case 2:
        guest_.AddBuffers(action / 8);
        guest_.TakePackets();
        return guest_.Poll();
      case 3:
        guest_.now += std::chrono::milliseconds(uint32_t{action} * 64);
        return guest_.device->OnHostReady(VsockDevice::kTimerToken, 1).has_value();
      case 4:
        return RawChain(input);
      default:
        return SendPacket(action, input);
    }
  }
  void Finish() {
    guest_.device->Reset();
    // Every Connect was answered exactly once.
    if (answers_ != connects_) {
      std::abort();
    }
  }

 private:
  bool Connect() {
    if (connects_ >= 16) {
      return true;
    }
    auto pair = MakeSocketPair(SOCK_STREAM);
    ::fcntl(pair->first.get(), F_SETFL, O_NONBLOCK);
    hosts_.push_back(std::move(pair->first));
    ++connects_;
    const auto note = [this](const Result<void>&) { ++answers_; };
    return guest_.device->Connect(49983, std::move(pair->second), note).has_value();
  }
  bool WriteOrClose(uint8_t action, fuzz::Input& input) {
    if (hosts_.empty()) {
      return true;
    }
    UniqueFd& host = hosts_[action / 8 % hosts_.size()];
    const auto what = input.Take<uint8_t>();
    if (what < 200) {
      std::vector<char> bytes(what * 64U, 'h');
      static_cast<void>(::send(host.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
      static_cast<void>(::recv(host.get(), bytes.data(), bytes.size(), MSG_DONTWAIT));
    } else if (what < 220) {
      ::shutdown(host.get(), what % 3);
    } else {
      host = UniqueFd();
    }
    return guest_.Poll();
  }
  bool SendPacket(uint8_t action, fuzz::Input& input) {
    vsock::PacketHeader to;
    const auto which = input.Take<uint8_t>();
    to.source_port = which < 0x20   ? 1024
                     : which < 0xf0 ? VsockDevice::kFirstHostPort + which % 16
                                    : input.Take<uint32_t>();
    to.destination_port = which < 0x20 ? which : 49983;
    auto header = guest_.Header(to, input.Take<uint8_t>() % 9);
    header.flags = input.Take<uint8_t>();
    header.forwarded_bytes = input.Take<uint16_t>();
    const uint32_t payload = input.Take<uint16_t>();
    header.length = payload;
    if (action >= 0xf0) {  // now and then nothing of it is right
      header.length = input.Take<uint32_t>();
      header.type = input.Take<uint8_t>();
      header.source_cid = 1 + input.Take<uint8_t>() % 4;
      header.buffer_bytes = input.Take<uint32_t>();
      header.forwarded_bytes = input.Take<uint32_t>();
    }
    return guest_.Send(header, std::string(payload, 'g')).has_value() && guest_.Poll();
  }
  bool RawChain(fuzz::Input& input) {
    const auto flags = input.Take<uint8_t>();
    FakeDriver& driver = flags % 2 == 0 ? guest_.receive : guest_.transmit;
    driver.Add({{input.Take<uint32_t>() % MiB(9), input.Take<uint16_t>(), (flags & 2) != 0}});
    return guest_.device->OnQueueReady(flags % 4).has_value();
  }

  FakeVsockGuest guest_;
  std::vector<UniqueFd> hosts_;
  int connects_ = 0;
  int answers_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  Session session;
  for (int step = 0; step < 128 && !input.is_empty(); ++step) {
    if (!session.Step(input)) {
      break;
    }
  }
  session.Finish();
  return 0;
}
