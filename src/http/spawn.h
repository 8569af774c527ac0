// Starts a coroutine that nobody waits for.
#pragma once

#include <string>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

namespace space::http {

// Runs `work` on `executor`; what it throws is logged under `name` and goes no further. The
// coroutine owns its parameters (values or shared owners): it may outlive the caller.
void Spawn(const boost::asio::any_io_executor& executor, boost::asio::awaitable<void> work,
           std::string name);

}  // namespace space::http
