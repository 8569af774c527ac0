#include "cli/build_watch.h"

#include <chrono>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json/array.hpp>

namespace space::cli {

std::string TemplateInTheMaking(const boost::json::object& pool) {
  const boost::json::value* templates = pool.if_contains("templates");
  if (templates == nullptr || !templates->is_array()) {
    return {};
  }
  for (const boost::json::value& entry : templates->get_array()) {
    const boost::json::object* one = entry.if_object();
    if (one != nullptr && JsonText(*one, "state") == "building") {
      return "template " + JsonText(*one, "templateID");
    }
  }
  return {};
}

asio::awaitable<void> WatchBuild(Api api, std::shared_ptr<Progress> progress,
                                 std::shared_ptr<bool> is_over) {
  if (!progress->is_visible()) {
    co_return;
  }
  asio::steady_timer timer(co_await asio::this_coro::executor);
  for (std::chrono::seconds pause{2}; !*is_over; pause = std::chrono::seconds(1)) {
    timer.expires_after(pause);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
    if (*is_over) {
      co_return;
    }
    const auto pool = co_await api.Pool();
    if (const std::string name = pool ? TemplateInTheMaking(*pool) : ""; !name.empty()) {
      progress->SetText("making " + name + ", once");
    } else {
      progress->SetText("creating sandbox");
    }
  }
}

asio::awaitable<Result<boost::json::object>> CreateWatched(asio::io_context& io, Api api,
                                                           boost::json::object body) {
  const auto progress = std::make_shared<Progress>(io.get_executor(), "creating sandbox");
  const auto is_over = std::make_shared<bool>(false);
  asio::co_spawn(io, WatchBuild(api, progress, is_over), asio::detached);
  auto sandbox = co_await api.CreateSandbox(std::move(body));
  *is_over = true;
  progress->Finish();
  co_return sandbox;
}

}  // namespace space::cli
