#include "agent/filesystem_service.h"

#include <array>
#include <utility>

#include "agent/blocking.h"
#include "agent/entry.h"
#include "agent/file_tree.h"
#include "agent/path_request.h"
#include "agent/proto/filesystem.pb.h"

namespace space::agent {
namespace {

namespace pb = rpc::filesystem;

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
  constexpr std::array<std::pair<std::string_view, Method>, 9> kMethods{
      {{"Stat", &FilesystemService::Stat},
       {"MakeDir", &FilesystemService::MakeDir},
       {"Move", &FilesystemService::Move},
       {"ListDir", &FilesystemService::ListDir},
       {"Remove", &FilesystemService::Remove},
       {"WatchDir", &FilesystemService::WatchDir},
       {"CreateWatcher", &FilesystemService::CreateWatcher},
       {"GetWatcherEvents", &FilesystemService::GetWatcherEvents},
       {"RemoveWatcher", &FilesystemService::RemoveWatcher}}};
  Result<void> done = Fail(ErrorCode::kUnimplemented, "unknown method", method);
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
  SPACE_CO_TRY(const auto asked, co_await ReadPath<pb::StatRequest>(call, settings_), "");
  co_return co_await AnswerEntry(call, {}, asked.path);
}

asio::awaitable<Result<void>> FilesystemService::MakeDir(RpcCall& call) {
  SPACE_CO_TRY(const auto asked, co_await ReadPath<pb::MakeDirRequest>(call, settings_), "");
  co_return co_await AnswerEntry(call, MakeNewFolder(asked.path, asked.user), asked.path);
}

asio::awaitable<Result<void>> FilesystemService::Move(RpcCall& call) {
  SPACE_CO_TRY(const auto asked, co_await ReadPath<pb::MoveRequest>(call, settings_), "");
  SPACE_CO_TRY(const auto to,
               ResolvePath(asked.request.destination(), asked.user, settings_.default_workdir), "");
  auto moved =
      co_await RunBlocking(pool_, [&asked, &to] { return MoveEntry(asked.path, to, asked.user); });
  co_return co_await AnswerEntry(call, std::move(moved), to);
}

asio::awaitable<Result<void>> FilesystemService::ListDir(RpcCall& call) {
  SPACE_CO_TRY(const auto asked, co_await ReadPath<pb::ListDirRequest>(call, settings_), "");
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
  SPACE_CO_TRY(const auto asked, co_await ReadPath<pb::RemoveRequest>(call, settings_), "");
  auto removed = co_await RunBlocking(pool_, [&asked] { return RemoveEntry(asked.path); });
  if (removed) {
    co_await call.Respond(pb::RemoveResponse());
  }
  co_return removed;
}

}  // namespace space::agent
