#include "agent/filesystem_service.h"

#include <array>
#include <utility>

#include "agent/access.h"
#include "agent/blocking.h"
#include "agent/entry.h"
#include "agent/file_tree.h"
#include "agent/paths.h"
#include "agent/proto/filesystem.pb.h"

namespace space::agent {
namespace {

namespace pb = rpc::filesystem;

std::string_view FirstPath(const pb::MoveRequest& request) { return request.source(); }
template <class Request>
std::string_view FirstPath(const Request& request) {
  return request.path();
}

template <class Request>
struct Asked {
  Request request;
  User user;  // whom its paths belong to
  std::string path;
};

// What every method begins with: the request, its user and its (first) path.
template <class Request>
asio::awaitable<Result<Asked<Request>>> Read(RpcCall& call, const Settings& settings) {
  Asked<Request> asked;
  SPACE_CO_TRY_VOID(co_await call.ReadRequest(asked.request), "");
  SPACE_CO_TRY(asked.user, SelectUser(call.request(), std::nullopt, settings), "");
  SPACE_CO_TRY(asked.path,
               ResolvePath(FirstPath(asked.request), asked.user, settings.default_workdir), "");
  co_return asked;
}

// Answers with the entry at `path` after `done` succeeded.
asio::awaitable<Result<void>> AnswerEntry(RpcCall& call, Result<void> done,
                                          const std::string& path) {
  pb::EntryResponse response;
  if (done) {
    done = FillEntry(path, UserDatabase::Load(), *response.mutable_entry());
  }
  if (done) {
    co_await call.Respond(response);
  }
  co_return done;
}

}  // namespace

asio::awaitable<void> FilesystemService::Serve(RpcCall& call, std::string_view method) {
  using Method = asio::awaitable<Result<void>> (FilesystemService::*)(RpcCall&);
  constexpr std::array<std::pair<std::string_view, Method>, 5> kMethods{
      {{"Stat", &FilesystemService::Stat},
       {"MakeDir", &FilesystemService::MakeDir},
       {"Move", &FilesystemService::Move},
       {"ListDir", &FilesystemService::ListDir},
       {"Remove", &FilesystemService::Remove}}};
  Result<void> done =
      Fail(ErrorCode::kUnimplemented, "filesystem method is not implemented", method);
  for (const auto& [name, serve] : kMethods) {
    if (name == method) {
      done = co_await (this->*serve)(call);
    }
  }
  if (!done) {
    co_await call.RespondError(std::move(done).error());
  }
}

asio::awaitable<Result<void>> FilesystemService::Stat(RpcCall& call) {
  SPACE_CO_TRY(const auto asked, co_await Read<pb::StatRequest>(call, settings_), "");
  co_return co_await AnswerEntry(call, {}, asked.path);
}

asio::awaitable<Result<void>> FilesystemService::MakeDir(RpcCall& call) {
  SPACE_CO_TRY(const auto asked, co_await Read<pb::MakeDirRequest>(call, settings_), "");
  co_return co_await AnswerEntry(call, MakeNewFolder(asked.path, asked.user), asked.path);
}

asio::awaitable<Result<void>> FilesystemService::Move(RpcCall& call) {
  SPACE_CO_TRY(const auto asked, co_await Read<pb::MoveRequest>(call, settings_), "");
  SPACE_CO_TRY(const auto to,
               ResolvePath(asked.request.destination(), asked.user, settings_.default_workdir), "");
  auto moved =
      co_await RunBlocking(pool_, [&asked, &to] { return MoveEntry(asked.path, to, asked.user); });
  co_return co_await AnswerEntry(call, std::move(moved), to);
}

asio::awaitable<Result<void>> FilesystemService::ListDir(RpcCall& call) {
  SPACE_CO_TRY(const auto asked, co_await Read<pb::ListDirRequest>(call, settings_), "");
  pb::ListDirResponse response;
  auto listed = co_await RunBlocking(pool_, [&asked, &response] {
    return ListTree(asked.path, asked.request.depth(), UserDatabase::Load(), response);
  });
  if (listed) {
    co_await call.Respond(response);
  }
  co_return listed;
}

asio::awaitable<Result<void>> FilesystemService::Remove(RpcCall& call) {
  SPACE_CO_TRY(const auto asked, co_await Read<pb::RemoveRequest>(call, settings_), "");
  auto removed = co_await RunBlocking(pool_, [&asked] { return RemoveEntry(asked.path); });
  if (removed) {
    co_await call.Respond(pb::RemoveResponse());
  }
  co_return removed;
}

}  // namespace space::agent
