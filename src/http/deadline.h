// Races an operation against a timer.
#pragma once

#include <chrono>
#include <exception>
#include <utility>

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>

#include "base/result.h"
#include "http/event.h"

namespace space::http {

// Exceptions (cancellation among them) as a result, so that a race has no third outcome.
template <class T>
asio::awaitable<Result<T>> CatchAll(asio::awaitable<Result<T>> work) {
  try {
    co_return co_await std::move(work);
  } catch (const std::exception& e) {
    co_return Fail(ErrorCode::kInternal, e.what());
  }
}

// The result of `work`, or kTimeout after `limit_ms`; `work` is then cancelled and waited for, so
// nothing of it runs afterwards.
template <class T>
asio::awaitable<Result<T>> WithDeadline(asio::awaitable<Result<T>> work, int limit_ms) {
  using namespace asio::experimental::awaitable_operators;
  asio::steady_timer timer(co_await asio::this_coro::executor, std::chrono::milliseconds(limit_ms));
  auto first = co_await (CatchAll(std::move(work)) || timer.async_wait(kNoThrow));
  if (first.index() == 1) {
    co_return Fail(ErrorCode::kTimeout, "no answer within " + std::to_string(limit_ms) + " ms");
  }
  co_return std::get<0>(std::move(first));
}

}  // namespace space::http
