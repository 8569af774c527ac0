#include "cli/machine_target.h"

#include <boost/asio/this_coro.hpp>

#include "machine/channel.h"

namespace space::cli {
namespace {

constexpr std::chrono::milliseconds kChannelLimit{30'000};

class MachineTarget final : public EnvdTarget {
 public:
  explicit MachineTarget(machine::Layout layout) : layout_(std::move(layout)) {}

  asio::awaitable<Result<EnvdConnection>> Connect() override {
    const auto executor = co_await asio::this_coro::executor;
    // Blocks for the few milliseconds of a handshake.
    SPACE_CO_TRY(machine::Channel channel,
                 machine::OpenChannel(layout_, machine::Verb::kOpen, kChannelLimit), name());
    SPACE_CO_TRY(http::Stream stream, http::AdoptStream(executor, std::move(channel.socket)),
                 name());
    co_return EnvdConnection{http::ClientConnection(std::move(stream)), std::move(channel.lock)};
  }

  http::Headers headers() const override { return {{"Host", "machine"}}; }
  std::string name() const override { return "the emulated host"; }

 private:
  machine::Layout layout_;
};

}  // namespace

std::shared_ptr<EnvdTarget> MakeMachineTarget(const machine::Settings& settings) {
  return std::make_shared<MachineTarget>(machine::Layout(settings));
}

}  // namespace space::cli
