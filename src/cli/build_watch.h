// Tells on a terminal that a create waits for its template to be built: the first of a size boots
// once, all later ones are restored.
#pragma once

#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "cli/api.h"
#include "cli/progress.h"

namespace space::cli {

// Looks at the pool each second, from two seconds on, until `is_over`; changes the progress line
// while a template is in the making. For a terminal; elsewhere it ends at once.
asio::awaitable<void> WatchBuild(Api api, std::shared_ptr<Progress> progress,
                                 std::shared_ptr<bool> is_over);

// Api::CreateSandbox with a line of progress on `io`'s thread.
asio::awaitable<Result<boost::json::object>> CreateWatched(asio::io_context& io, Api api,
                                                           boost::json::object body);

// "template base@2c-1024m"; "" when none is in the making.
std::string TemplateInTheMaking(const boost::json::object& pool);

}  // namespace space::cli
