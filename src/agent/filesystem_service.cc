#include "agent/filesystem_service.h"

#include "agent/access.h"
#include "agent/blocking.h"
#include "agent/entry.h"
#include "agent/file_tree.h"
#include "agent/paths.h"
#include "agent/proto/filesystem.pb.h"

namespace space::agent {
namespace {

namespace pb = rpc::filesystem;

// Reads the request and the user that its paths belong to.
asio::awaitable<Result<User>> ReadFor(RpcCall& call, google::protobuf::Message& request,
                                      const Settings& settings) {
  auto read = co_await call.ReadRequest(request);
  if (!read) {
    co_return Fail(std::move(read).error());
  }
  co_return SelectUser(call.request(), std::nullopt, settings);
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
  Result<void> done =
      Fail(ErrorCode::kUnimplemented, "filesystem method is not implemented", method);
  if (method == "Stat") {
    done = co_await Stat(call);
  } else if (method == "MakeDir") {
    done = co_await MakeDir(call);
  } else if (method == "Move") {
    done = co_await Move(call);
  } else if (method == "ListDir") {
    done = co_await ListDir(call);
  } else if (method == "Remove") {
    done = co_await Remove(call);
  }
  if (!done) {
    co_await call.RespondError(std::move(done).error());
  }
}

asio::awaitable<Result<void>> FilesystemService::Stat(RpcCall& call) {
  pb::StatRequest request;
  const auto user = co_await ReadFor(call, request, settings_);
  if (!user) {
    co_return Fail(user.error());
  }
  const auto path = ResolvePath(request.path(), *user, settings_.default_workdir);
  if (!path) {
    co_return Fail(path.error());
  }
  co_return co_await AnswerEntry(call, {}, *path);
}

asio::awaitable<Result<void>> FilesystemService::MakeDir(RpcCall& call) {
  pb::MakeDirRequest request;
  const auto user = co_await ReadFor(call, request, settings_);
  if (!user) {
    co_return Fail(user.error());
  }
  const auto path = ResolvePath(request.path(), *user, settings_.default_workdir);
  if (!path) {
    co_return Fail(path.error());
  }
  co_return co_await AnswerEntry(call, MakeNewFolder(*path, *user), *path);
}

asio::awaitable<Result<void>> FilesystemService::Move(RpcCall& call) {
  pb::MoveRequest request;
  const auto user = co_await ReadFor(call, request, settings_);
  if (!user) {
    co_return Fail(user.error());
  }
  const auto from = ResolvePath(request.source(), *user, settings_.default_workdir);
  const auto to = ResolvePath(request.destination(), *user, settings_.default_workdir);
  if (!from || !to) {
    co_return Fail(from ? to.error() : from.error());
  }
  auto moved =
      co_await RunBlocking(pool_, [&from, &to, &user] { return MoveEntry(*from, *to, *user); });
  co_return co_await AnswerEntry(call, std::move(moved), *to);
}

asio::awaitable<Result<void>> FilesystemService::ListDir(RpcCall& call) {
  pb::ListDirRequest request;
  const auto user = co_await ReadFor(call, request, settings_);
  if (!user) {
    co_return Fail(user.error());
  }
  const auto path = ResolvePath(request.path(), *user, settings_.default_workdir);
  if (!path) {
    co_return Fail(path.error());
  }
  pb::ListDirResponse response;
  auto listed = co_await RunBlocking(pool_, [&path, &request, &response] {
    return ListTree(*path, request.depth(), UserDatabase::Load(), response);
  });
  if (listed) {
    co_await call.Respond(response);
  }
  co_return listed;
}

asio::awaitable<Result<void>> FilesystemService::Remove(RpcCall& call) {
  pb::RemoveRequest request;
  const auto user = co_await ReadFor(call, request, settings_);
  if (!user) {
    co_return Fail(user.error());
  }
  const auto path = ResolvePath(request.path(), *user, settings_.default_workdir);
  if (!path) {
    co_return Fail(path.error());
  }
  auto removed = co_await RunBlocking(pool_, [&path] { return RemoveEntry(*path); });
  if (removed) {
    co_await call.Respond(pb::RemoveResponse());
  }
  co_return removed;
}

}  // namespace space::agent
