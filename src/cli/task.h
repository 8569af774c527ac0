// Running one coroutine of the command line to its end on the calling thread.
#pragma once

#include <exception>
#include <optional>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include "base/result.h"

namespace space::cli {

namespace asio = boost::asio;

// Work that is left on the context (detached coroutines) is dropped with it.
template <class T>
Result<T> RunTask(asio::io_context& io, asio::awaitable<Result<T>> work) {
  std::optional<Result<T>> outcome;
  std::exception_ptr thrown;
  io.restart();  // an earlier task has left the context stopped
  asio::co_spawn(io, std::move(work), [&](std::exception_ptr problem, Result<T> result) {
    thrown = problem;
    outcome = std::move(result);
  });
  while (!outcome && io.run_one() > 0) {
  }
  if (thrown) {
    std::rethrow_exception(thrown);
  }
  if (!outcome) {
    return Fail(ErrorCode::kInternal, "nothing is left to wait for");
  }
  return *std::move(outcome);
}

}  // namespace space::cli
