#include "http/event.h"

namespace space::http {

asio::awaitable<bool> Event::Wait() {
  co_await timer_.async_wait(kNoThrow);
  const auto state = co_await asio::this_coro::cancellation_state;
  co_return state.cancelled() == asio::cancellation_type::none;
}

}  // namespace space::http
