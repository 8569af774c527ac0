#include "agent/compose.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "agent/access.h"
#include "agent/blocking.h"
#include "agent/codec.h"
#include "agent/file_writer.h"
#include "agent/paths.h"
#include "agent/proto/rest.pb.h"
#include "agent/respond.h"
#include "base/fd.h"
#include "base/log.h"

namespace space::agent {
namespace {

constexpr size_t kMaxRequestBytes = 4 << 20;

Result<void> Append(const std::string& source, FileWriter& into) {
  const UniqueFd fd(open(source.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) {
    return FailErrno("open", source);
  }
  std::string chunk(64 * 1024, '\0');
  while (true) {
    const ssize_t bytes = read(fd.get(), chunk.data(), chunk.size());
    if (bytes < 0 && errno == EINTR) {
      continue;
    }
    if (bytes < 0) {
      return FailErrno("read", source);
    }
    if (bytes == 0) {
      return {};
    }
    auto written = into.Write(std::string_view(chunk).substr(0, static_cast<size_t>(bytes)));
    if (!written) {
      return written;
    }
  }
}

Result<void> Compose(const std::vector<std::string>& sources, const std::string& destination,
                     const User& user) {
  for (const std::string& source : sources) {
    if (source == destination) {
      return Fail(ErrorCode::kInvalidArgument, "destination is one of the sources", destination);
    }
    if (access(source.c_str(), R_OK) < 0) {
      return FailErrno("open", source);  // before the destination is emptied
    }
  }
  auto writer = FileWriter::Create(destination, user);
  if (!writer) {
    return Fail(std::move(writer).error());
  }
  for (const std::string& source : sources) {
    auto appended = Append(source, *writer);
    if (!appended) {
      return appended;
    }
  }
  auto finished = writer->Finish({});
  for (const std::string& source : sources) {
    unlink(source.c_str());
  }
  return finished;
}

}  // namespace

asio::awaitable<void> ServeCompose(http::Exchange& exchange, asio::thread_pool& pool,
                                   const Settings& settings) {
  const auto body = co_await exchange.ReadAll(kMaxRequestBytes);
  rpc::rest::ComposeRequest request;
  Result<void> done;
  if (!body) {
    done = Fail(body.error());
  } else {
    done = Decode(Codec::kJson, *body, request);
  }
  const auto user = SelectUser(exchange.request(), std::string_view(request.username()), settings);
  if (done && !user) {
    done = Fail(user.error());
  }
  std::vector<std::string> paths;  // the destination last
  if (done) {
    std::vector<std::string> asked(request.source_paths().begin(), request.source_paths().end());
    asked.push_back(request.destination());
    for (const std::string& name : asked) {
      auto path = ResolvePath(name, *user, settings.default_workdir);
      if (!path) {
        done = Fail(std::move(path).error());
        break;
      }
      paths.push_back(*std::move(path));
    }
  }
  if (done) {
    const std::string destination = paths.back();
    paths.pop_back();
    done = co_await RunBlocking(
        pool, [&paths, &destination, &user] { return Compose(paths, destination, *user); });
    if (done) {
      co_return co_await RespondJson(
          exchange, "{\"path\":\"" + log::EscapeJson(destination) + "\",\"name\":\"" +
                        log::EscapeJson(BaseName(destination)) + "\",\"type\":\"file\"}");
    }
  }
  co_await RespondRestError(exchange, RestStatus(done.error()), done.error().message());
}

}  // namespace space::agent
