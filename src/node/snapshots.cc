// Snapshots that clients keep: templates of their own, made of a sandbox that goes on.
#include <algorithm>
#include <cctype>
#include <utility>

#include "base/log.h"
#include "base/random.h"
#include "node/node.h"
#include "node/turn.h"

namespace space {
namespace {

constexpr std::string_view kNameLetters = "abcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr std::string_view kTagLetters = "abcdefghijklmnopqrstuvwxyz0123456789-_.";
constexpr size_t kMaxName = 128;

bool IsMadeOf(std::string_view text, std::string_view letters) {
  return !text.empty() && text.size() <= kMaxName &&
         text.find_first_not_of(letters) == std::string_view::npos;
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return lower;
}

struct SnapshotName {
  std::string name_space;
  std::string name;
  std::string tag;  // empty: none given
};

// "name", "name:tag", "namespace/name:tag", in lower case.
Result<SnapshotName> ParseName(std::string_view text) {
  SnapshotName parsed;
  std::string rest = Lower(text);
  const auto bad = [&] {
    return Fail(ErrorCode::kInvalidArgument,
                "name must be NAME, NAME:TAG or NAMESPACE/NAME:TAG of a-z, 0-9, - and _, not",
                text);
  };
  if (const size_t slash = rest.find('/'); slash != std::string::npos) {
    parsed.name_space = rest.substr(0, slash);
    rest = rest.substr(slash + 1);
    if (!IsMadeOf(parsed.name_space, kTagLetters)) {
      return bad();
    }
  }
  if (const size_t colon = rest.find(':'); colon != std::string::npos) {
    parsed.tag = rest.substr(colon + 1);
    rest = rest.substr(0, colon);
    if (!IsMadeOf(parsed.tag, kTagLetters)) {
      return bad();
    }
  }
  if (!IsMadeOf(rest, kNameLetters)) {
    return bad();
  }
  parsed.name = std::move(rest);
  return parsed;
}

tl::unexpected<Error> NoTemplate(std::string_view reference) {
  return Fail(ErrorCode::kNotFound, "template '" + std::string(reference) + "' not found");
}

}  // namespace

// Until nobody changes its state; an error when it is not there any more.
asio::awaitable<Result<void>> Node::WaitUntilStill(SandboxPointer sandbox) {
  const std::function<bool()> is_still = [sandbox] {
    return sandbox->is_gone || sandbox->end_reason || !sandbox->is_moving();
  };
  const bool is_in_time = co_await WaitUntil(sandbox->changed, is_still, std::chrono::minutes(11));
  if (sandbox->is_gone || sandbox->end_reason) {
    co_return NoSandbox(sandbox->record.id);
  }
  if (!is_in_time) {
    co_return Fail(ErrorCode::kConflict, "sandbox is still changing its state; try again");
  }
  co_return Result<void>();
}

Result<SnapshotRecord> Node::NameSnapshot(const SandboxRecord& source, const std::string& name) {
  SnapshotRecord named;
  named.template_id = RandomLowerAlnum(20);
  if (name.empty()) {
    return named;
  }
  SPACE_TRY(SnapshotName parsed, ParseName(name), "");
  SPACE_TRY(const std::optional<Team> team, catalog_.keys().FindTeamById(source.team_id), "");
  const std::string own = team ? Lower(team->name) : "";
  if (!parsed.name_space.empty() && parsed.name_space != own) {
    return Fail(ErrorCode::kInvalidArgument, "name: namespace '" + parsed.name_space +
                                                 "' is not your team's, which is '" + own + "'");
  }
  SPACE_TRY(const std::optional<Template> taken, catalog_.templates().Find(parsed.name), "");
  if (taken) {
    return Fail(ErrorCode::kInvalidArgument, "name is the one of a template", parsed.name);
  }
  SnapshotQuery same_name;
  same_name.team_id = source.team_id;
  same_name.name = parsed.name;
  same_name.limit = 1;
  SPACE_TRY(const SnapshotPage page, catalog_.snapshots().List(same_name), "");
  if (!page.snapshots.empty()) {
    named.template_id = page.snapshots.front().template_id;
  }
  named.name_space = own;
  named.name = std::move(parsed.name);
  named.tag = parsed.tag.empty() ? "default" : std::move(parsed.tag);
  return named;
}

asio::awaitable<Result<SnapshotRecord>> Node::Snapshot(std::string team_id, std::string id,
                                                       std::string name) {
  SPACE_CO_TRY(const SandboxPointer sandbox, FindLive(team_id, id), "");
  if (sandbox->end_reason) {
    co_return NoSandbox(id);
  }
  if (sandbox->record.state != SandboxState::kRunning) {
    co_return Fail(ErrorCode::kConflict, "sandbox is " +
                                             std::string(SandboxStateName(sandbox->record.state)) +
                                             " and cannot be snapshotted now");
  }
  SPACE_CO_TRY(const SnapshotRecord named, NameSnapshot(sandbox->record, name), "");
  auto image = co_await TakeSnapshot(sandbox, {});
  const bool is_moved = sandbox->record.state == SandboxState::kSnapshotting;
  Result<void> stored;
  if (image) {
    SnapshotRecord& record = (*image)->record;
    record.template_id = named.template_id;
    record.name_space = named.name_space;
    record.name = named.name;
    record.tag = named.tag;
    record.used_at = record.created_at;
    stored = co_await SyncLayers();
  } else {
    stored = Fail(image.error());
  }
  if (stored && sandbox->is_gone) {
    stored = NoSandbox(id);
  }
  if (stored) {
    stored = StoreSnapshot(sandbox, **image, SandboxState::kRunning);
  }
  if (!stored) {
    if (image) {
      layers_->RemoveSnapshotFiles((*image)->record.id);
    }
    if (is_moved && !sandbox->is_gone) {
      SettleRunning(sandbox);
    }
    sandbox->changed.Notify();
    co_return Fail(std::move(stored).error());
  }
  sandbox->changed.Notify();
  co_return (*image)->record;
}

Result<void> Node::StoreSnapshot(const SandboxPointer& sandbox, const MachineImage& image,
                                 SandboxState to) {
  const SandboxRecord before = sandbox->record;
  sandbox->record.last_measures = image.record.measures;
  const auto store = [&]() -> Result<void> {
    SPACE_TRY(Transaction transaction, catalog_.Begin(Durability::kDurable), "snapshot");
    SPACE_TRY_VOID(catalog_.snapshots().Insert(image.record), "snapshot");
    SPACE_TRY_VOID(layers_->Store({LayerUser::Kind::kSnapshot, image.record.id},
                                  image.record.team_id, image.chains),
                   "snapshot");
    for (const LayerPointer& layer : image.chains.root) {
      SPACE_TRY_VOID(catalog_.layers().Freeze(layer->record.id, layer->record.file_bytes),
                     "snapshot");
    }
    SPACE_TRY_VOID(StoreAfterSnapshot(sandbox, to), "snapshot");
    return transaction.Commit();
  };
  auto stored = store();
  if (!stored) {
    sandbox->record = before;
  }
  return stored;
}

// Back to running, with the disk layers that are now in use, after a snapshot that failed.
void Node::SettleRunning(const SandboxPointer& sandbox) {
  const auto settle = [&]() -> Result<void> {
    SPACE_TRY(Transaction transaction, catalog_.Begin(Durability::kFast), "");
    SPACE_TRY_VOID(StoreAfterSnapshot(sandbox, SandboxState::kRunning), "");
    return transaction.Commit();
  };
  if (const auto settled = settle(); !settled) {
    log::Error("snapshot_not_settled",
               {{"sandbox_id", sandbox->record.id}, {"error", settled.error().message()}});
    sandbox->record.state = SandboxState::kRunning;  // what it is; the catalog is broken
  }
  sandbox->changed.Notify();
}

Result<SnapshotPage> Node::ListSnapshots(const SnapshotQuery& query) {
  return catalog_.snapshots().List(query);
}

Result<SnapshotRecord> Node::FindSnapshot(const std::string& team_id,
                                          const std::string& reference) {
  const auto parsed = ParseName(reference);
  if (!parsed) {
    return NoTemplate(reference);
  }
  SPACE_TRY(std::optional<SnapshotRecord> found,
            catalog_.snapshots().FindKept(team_id, parsed->name,
                                          parsed->tag.empty() ? "default" : parsed->tag),
            "");
  if (found && (parsed->name_space.empty() || parsed->name_space == found->name_space)) {
    return *std::move(found);
  }
  SnapshotQuery any_tag;
  any_tag.team_id = team_id;
  any_tag.name = parsed->name;
  any_tag.limit = 1;
  SPACE_TRY(const SnapshotPage page, catalog_.snapshots().List(any_tag), "");
  if (!page.snapshots.empty() &&
      (parsed->name_space.empty() || parsed->name_space == page.snapshots.front().name_space)) {
    return Fail(ErrorCode::kNotFound, "tag '" + (parsed->tag.empty() ? "default" : parsed->tag) +
                                          "' does not exist for template '" + parsed->name + "'");
  }
  return NoTemplate(reference);
}

asio::awaitable<Result<void>> Node::DeleteSnapshot(std::string team_id, std::string reference) {
  const auto parsed = ParseName(reference);
  if (!parsed) {
    co_return NoTemplate(reference);
  }
  SnapshotQuery query;
  query.team_id = team_id;
  query.name = parsed->name;
  if (!parsed->tag.empty()) {
    query.tag = parsed->tag;
  }
  if (!parsed->name_space.empty()) {
    query.name_space = parsed->name_space;
  }
  query.limit = SIZE_MAX - 1;
  SPACE_CO_TRY(const SnapshotPage page, catalog_.snapshots().List(query), "delete snapshot");
  if (page.snapshots.empty()) {
    co_return NoTemplate(reference);
  }
  std::string users;
  SPACE_CO_TRY(const std::vector<std::string> ids,
               catalog_.sandboxes().LiveOfTemplate(page.snapshots.front().template_id),
               "delete snapshot");
  for (const std::string& user : ids) {
    users += (users.empty() ? "" : ", ") + user;
  }
  if (!users.empty()) {
    co_return Fail(ErrorCode::kInvalidArgument,
                   "template '" + reference + "' is used by running or paused sandboxes: " + users);
  }
  SPACE_CO_TRY(const std::vector<SnapshotRecord> kept,
               catalog_.snapshots().OfKind(SnapshotKind::kKept), "delete snapshot");
  for (const SnapshotRecord& record : kept) {
    // Without a tag it is the whole name, with what has lost its tag.
    const bool is_named = record.team_id == team_id &&
                          record.template_id == page.snapshots.front().template_id &&
                          (parsed->tag.empty() || record.tag == parsed->tag);
    if (is_named) {
      RemoveSnapshot(record);
    }
  }
  co_return Result<void>();
}

}  // namespace space
