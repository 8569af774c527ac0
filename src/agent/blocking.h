// Work that blocks on disks, away from the thread that serves everyone.
#pragma once

#include <utility>

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/thread_pool.hpp>

#include "agent/wake.h"

namespace space::agent {

// Runs `work` in the pool and goes on in the caller's executor with its value. What `work` refers
// to must live in the caller's frame or longer.
template <class Work>
asio::awaitable<std::invoke_result_t<Work>> RunBlocking(asio::thread_pool& pool, Work work) {
  const auto home = co_await asio::this_coro::executor;
  co_await asio::post(asio::bind_executor(pool, asio::use_awaitable));
  auto value = work();
  co_await asio::post(asio::bind_executor(home, asio::use_awaitable));
  co_return value;
}

}  // namespace space::agent
