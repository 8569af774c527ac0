// How every call of the file system service begins: with a request, its user and a path.
#pragma once

#include <string>
#include <string_view>

#include "agent/access.h"
#include "agent/paths.h"
#include "agent/proto/filesystem.pb.h"
#include "agent/rpc.h"
#include "agent/settings.h"
#include "agent/users.h"

namespace space::agent {

template <class Request>
struct PathRequest {
  Request request;
  User user;  // whom its paths belong to
  std::string path;
};

inline std::string_view FirstPath(const rpc::filesystem::MoveRequest& request) {
  return request.source();
}
template <class Request>
std::string_view FirstPath(const Request& request) {
  return request.path();
}

template <class Request>
asio::awaitable<Result<PathRequest<Request>>> ReadPath(RpcCall& call, const Settings& settings) {
  PathRequest<Request> asked;
  SPACE_CO_TRY_VOID(co_await call.ReadRequest(asked.request), "");
  SPACE_CO_TRY(asked.user, SelectUser(call.request(), std::nullopt, settings), "");
  SPACE_CO_TRY(asked.path,
               ResolvePath(FirstPath(asked.request), asked.user, settings.default_workdir), "");
  co_return asked;
}

}  // namespace space::agent
