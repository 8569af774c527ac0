#include "http/spawn.h"

#include <exception>
#include <utility>

#include <boost/asio/co_spawn.hpp>

#include "base/log.h"

namespace space::http {

void Spawn(const boost::asio::any_io_executor& executor, boost::asio::awaitable<void> work,
           std::string name) {
  boost::asio::co_spawn(executor, std::move(work),
                        [name = std::move(name)](const std::exception_ptr& thrown) {
                          if (!thrown) {
                            return;
                          }
                          try {
                            std::rethrow_exception(thrown);
                          } catch (const std::exception& e) {
                            SPACE_LOG_LIMITED(log::Level::kError, "coroutine_threw", {"name", name},
                                              {"what", e.what()});
                          } catch (...) {
                            SPACE_LOG_LIMITED(log::Level::kError, "coroutine_threw", {"name", name},
                                              {"what", "not an exception"});
                          }
                        });
}

}  // namespace space::http
