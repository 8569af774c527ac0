#include "node/node.h"
namespace space {
asio::awaitable<Result<ForkReport>> Node::Fork(std::string, std::string, ForkSpec) {
  co_return Fail(ErrorCode::kUnimplemented, "fork is not there yet");
}
asio::awaitable<Result<SnapshotRecord>> Node::Snapshot(std::string, std::string, std::string) {
  co_return Fail(ErrorCode::kUnimplemented, "snapshot is not there yet");
}
asio::awaitable<Result<void>> Node::Pause(std::string, std::string, bool) {
  co_return Fail(ErrorCode::kUnimplemented, "pause is not there yet");
}
asio::awaitable<Result<ResumeOutcome>> Node::Resume(std::string team_id, std::string id,
                                                    ResumeSpec spec) {
  SPACE_CO_TRY(SandboxRecord record, ExtendTimeout(team_id, id, spec.timeout_seconds), "");
  co_return ResumeOutcome{std::move(record), true};
}
Result<SnapshotPage> Node::ListSnapshots(const SnapshotQuery& query) {
  return catalog_.snapshots().List(query);
}
Result<SnapshotRecord> Node::FindSnapshot(const std::string&, const std::string& reference) {
  return Fail(ErrorCode::kNotFound, "template '" + reference + "' not found");
}
asio::awaitable<Result<void>> Node::DeleteSnapshot(std::string, std::string reference) {
  co_return Fail(ErrorCode::kNotFound, "template '" + reference + "' not found");
}
Result<SandboxRecord> Node::FindShown(const std::string& team_id, std::string_view id) {
  return FindRunning(team_id, id);
}
std::optional<SandboxRecord> Node::FindWakeable(std::string_view) { return std::nullopt; }
asio::awaitable<std::shared_ptr<Sandbox>> Node::Wake(std::string id) { co_return FindUsable(id); }
}  // namespace space
