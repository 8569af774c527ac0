// Work that waits for disks, away from the thread that serves everyone.
#pragma once

#include <type_traits>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace space {

// Runs `work` in the pool and goes on in the caller's executor with its value. `work` owns what it
// uses, or its caller's frame does.
template <class Work>
boost::asio::awaitable<std::invoke_result_t<Work>> RunBlocking(boost::asio::thread_pool& pool,
                                                               Work work) {
  const auto home = co_await boost::asio::this_coro::executor;
  co_await boost::asio::post(boost::asio::bind_executor(pool, boost::asio::use_awaitable));
  auto value = work();
  co_await boost::asio::post(boost::asio::bind_executor(home, boost::asio::use_awaitable));
  co_return value;
}

}  // namespace space
