#include "node/layer_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <set>
#include <utility>

#include "base/log.h"
#include "base/random.h"
#include "base/units.h"
#include "layer/sparse_layer.h"

namespace space {
namespace {

constexpr std::string_view kStateSuffix = ".state";
constexpr std::string_view kWorkingSetSuffix = ".pages";

Micros MicrosNow() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

bool IsSameImage(const struct stat& a, const struct stat& b) {
  return a.st_size == b.st_size && a.st_mtim.tv_sec == b.st_mtim.tv_sec &&
         a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

// Across file systems, or where links to files of others are forbidden.
Result<void> CopyImage(const std::string& from, const std::string& to, const struct stat& info) {
  SPACE_TRY(const UniqueFd source, OpenReadOnly(from), "copy image");
  SPACE_TRY(const UniqueFd target, CreateExclusive(to), "copy image");
  if (::ftruncate(target.get(), info.st_size) != 0) {
    return FailErrno("copy image to", to);
  }
  std::vector<std::byte> buffer(MiB(1));
  off_t at = 0;
  while (at < info.st_size) {
    const off_t data = ::lseek(source.get(), at, SEEK_DATA);
    if (data < 0) {
      break;  // ENXIO: a hole up to the end
    }
    off_t end = ::lseek(source.get(), data, SEEK_HOLE);
    end = end < 0 ? info.st_size : end;
    // Not copy_file_range: Linux refuses it between file systems of different kinds.
    for (off_t offset = data; offset < end;) {
      const auto part =
          std::span(buffer).first(std::min(buffer.size(), static_cast<size_t>(end - offset)));
      SPACE_TRY_VOID(PreadFull(source.get(), part, static_cast<uint64_t>(offset)), "copy image");
      SPACE_TRY_VOID(PwriteFull(target.get(), part, static_cast<uint64_t>(offset)),
                     "copy image to " + to);
      offset += static_cast<off_t>(part.size());
    }
    at = end;
  }
  // The time is how the copy is known as the image's.
  const timespec times[2] = {info.st_mtim, info.st_mtim};
  if (::futimens(target.get(), times) != 0 || ::fchmod(target.get(), 0400) != 0 ||
      ::fsync(target.get()) != 0) {
    return FailErrno("copy image to", to);
  }
  return {};
}

void AddIds(std::vector<std::string>& ids, const std::vector<LayerPointer>& layers) {
  for (const LayerPointer& layer : layers) {
    ids.push_back(layer->record.id);
  }
}

}  // namespace

Layer::~Layer() {
  if (const auto owner = folder.lock()) {
    owner->Drop(record);
  }
}

Chains LayerChains::Ids() const {
  Chains ids;
  AddIds(ids["memory"], memory);
  AddIds(ids["root"], root);
  AddIds(ids["modules"], modules);
  return ids;
}

Result<void> LayerFolder::Prepare() { return MakeDirectories(folder_, 0700); }

std::string LayerFolder::PathOf(const LayerRecord& record) const {
  return folder_ + "/" + record.id + (record.form == LayerForm::kRaw ? ".raw" : ".layer");
}

std::string LayerFolder::StatePath(std::string_view snapshot_id) const {
  return folder_ + "/" + std::string(snapshot_id) + std::string(kStateSuffix);
}

std::string LayerFolder::WorkingSetPath(std::string_view snapshot_id) const {
  return folder_ + "/" + std::string(snapshot_id) + std::string(kWorkingSetSuffix);
}

Result<UniqueFd> LayerFolder::CreateFile(const std::string& path) const {
  return CreateExclusive(path);
}

void LayerFolder::RemoveSnapshotFiles(std::string_view snapshot_id) const {
  ::unlink(StatePath(snapshot_id).c_str());
  ::unlink(WorkingSetPath(snapshot_id).c_str());
}

LayerPointer LayerFolder::Register(LayerRecord record) {
  const std::string id = record.id;
  auto layer = std::make_shared<Layer>(weak_from_this(), std::move(record));
  known_[id] = layer;
  return layer;
}

Result<NewLayer> LayerFolder::Create(const std::string& team_id, LayerKind kind,
                                     LayerStorage storage, uint64_t size_bytes) {
  LayerRecord record;
  record.id = RandomHex(16);
  record.team_id = team_id;
  record.kind = kind;
  record.storage = storage;
  record.size_bytes = size_bytes;
  record.created_at = MicrosNow();
  NewLayer made;
  if (storage == LayerStorage::kMemory) {
    SPACE_TRY(made.fd, CreateMemfd("layer-" + record.id.substr(0, 8)), "make layer");
    made.layer = Register(std::move(record));
    SPACE_TRY(made.layer->memory, made.fd.Duplicate(), "make layer");
  } else {
    SPACE_TRY(made, MakeFile(std::move(record)), "make layer");
  }
  SPACE_TRY_VOID(CreateSparseLayer(made.fd.get(), size_bytes),
                 "make layer " + made.layer->record.id);
  return made;
}

Result<NewLayer> LayerFolder::MakeFile(LayerRecord record) {
  NewLayer made;
  SPACE_TRY(made.fd, CreateExclusive(PathOf(record)), "");
  made.layer = Register(std::move(record));
  if (::flock(made.fd.get(), LOCK_SH | LOCK_NB) != 0) {
    return FailErrno("lock layer", made.layer->record.id);
  }
  return made;
}

Result<NewLayer> LayerFolder::CreateLike(const Layer& like) {
  SPACE_TRY(UniqueFd fd, Open(like), "make layer");
  SPACE_TRY(const SparseLayer opened, SparseLayer::Open(std::move(fd)), "layer " + like.record.id);
  LayerRecord record = like.record;
  record.id = RandomHex(16);
  record.is_frozen = false;
  record.file_bytes = 0;
  record.created_at = MicrosNow();
  SPACE_TRY(NewLayer made, MakeFile(std::move(record)), "make layer");
  SPACE_TRY_VOID(CreateSparseLayer(made.fd.get(), like.record.size_bytes, opened.id()),
                 "make layer");
  return made;
}

Result<LayerPointer> LayerFolder::Pin(const std::string& image_path) {
  struct stat wanted = {};
  if (::stat(image_path.c_str(), &wanted) != 0) {
    if (errno == ENOENT) {
      return Fail(ErrorCode::kNotFound, "image is missing", image_path);
    }
    return FailErrno("look at image", image_path);
  }
  const auto is_it = [&](const LayerRecord& record) {
    struct stat info = {};
    return record.form == LayerForm::kRaw && ::stat(PathOf(record).c_str(), &info) == 0 &&
           IsSameImage(info, wanted);
  };
  for (const auto& [id, weak] : known_) {
    if (const LayerPointer known = weak.lock(); known && is_it(known->record)) {
      return known;
    }
  }
  SPACE_TRY(const std::vector<LayerRecord> stored, catalog_.layers().List(), "pin image");
  for (const LayerRecord& record : stored) {
    if (is_it(record)) {
      return Register(record);
    }
  }
  LayerRecord record;
  record.id = RandomHex(16);
  record.form = LayerForm::kRaw;
  record.is_frozen = true;
  record.size_bytes = static_cast<uint64_t>(wanted.st_size);
  record.file_bytes = static_cast<uint64_t>(wanted.st_blocks) * 512;
  record.created_at = MicrosNow();
  const std::string path = PathOf(record);
  LayerPointer layer = Register(std::move(record));
  if (::link(image_path.c_str(), path.c_str()) != 0) {
    SPACE_TRY_VOID(CopyImage(image_path, path, wanted), "pin " + image_path);
  }
  return layer;
}

Result<LayerPointer> LayerFolder::Find(std::string_view id) {
  const auto found = known_.find(id);
  if (LayerPointer layer = found == known_.end() ? nullptr : found->second.lock()) {
    return layer;
  }
  SPACE_TRY(std::optional<LayerRecord> record, catalog_.layers().Find(id), "find layer");
  if (!record) {
    return Fail(ErrorCode::kNotFound, "no such layer", id);
  }
  return Register(*std::move(record));
}

Result<LayerChains> LayerFolder::Load(const LayerUser& user) {
  SPACE_TRY(const Chains ids, catalog_.layers().ChainsOf(user), "load layers");
  LayerChains chains;
  for (const auto& [name, list] : ids) {
    std::vector<LayerPointer>& into = name == "memory" ? chains.memory
                                      : name == "root" ? chains.root
                                                       : chains.modules;
    for (const std::string& id : list) {
      SPACE_TRY(LayerPointer layer, Find(id), "load layers");
      into.push_back(std::move(layer));
    }
  }
  return chains;
}

Result<void> LayerFolder::Store(const LayerUser& user, const std::string& team_id,
                                const LayerChains& chains) {
  for (const auto* list : {&chains.memory, &chains.root, &chains.modules}) {
    for (const LayerPointer& layer : *list) {
      SPACE_TRY_VOID(catalog_.layers().Insert(layer->record), "");
    }
  }
  return catalog_.layers().SetChains(user, team_id, chains.Ids());
}

Result<UniqueFd> LayerFolder::Open(const Layer& layer, bool is_writable) const {
  const LayerRecord& record = layer.record;
  if (record.storage == LayerStorage::kMemory) {
    if (!layer.memory.valid()) {
      return Fail(ErrorCode::kNotFound, "memory layer was lost with an earlier spaced", record.id);
    }
    return layer.memory.Duplicate();
  }
  auto fd = is_writable ? OpenReadWrite(PathOf(record)) : OpenReadOnly(PathOf(record));
  if (!fd && fd.error().code() == ErrorCode::kNotFound) {
    return Fail(ErrorCode::kNotFound, "layer is missing", PathOf(record));
  }
  return fd;
}

Result<void> LayerFolder::Freeze(Layer& layer) {
  LayerRecord& record = layer.record;
  struct stat info = {};
  if (record.storage == LayerStorage::kMemory) {
    // The size for ever, so that no reader of a mapping meets SIGBUS. A child that still has it
    // mapped for writing would forbid F_SEAL_WRITE.
    if (::fcntl(layer.memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0 ||
        ::fstat(layer.memory.get(), &info) != 0) {
      return FailErrno("seal layer", record.id);
    }
  } else if (::chmod(PathOf(record).c_str(), 0400) != 0 ||
             ::stat(PathOf(record).c_str(), &info) != 0) {
    return FailErrno("freeze layer", record.id);
  }
  record.is_frozen = true;
  record.file_bytes = static_cast<uint64_t>(info.st_blocks) * 512;
  return {};
}

Result<bool> LayerFolder::IsHeldByOthers(const Layer& layer) const {
  SPACE_TRY(const UniqueFd fd, Open(layer), "look who has layer");
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) {
    return false;
  }
  if (errno != EWOULDBLOCK) {
    return FailErrno("look who has layer", layer.record.id);
  }
  return true;
}

Result<void> LayerFolder::SyncNames() const {
  const UniqueFd fd(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() || ::fsync(fd.get()) != 0) {
    return FailErrno("sync", folder_);
  }
  return {};
}

void LayerFolder::Drop(const LayerRecord& record) {
  const auto found = known_.find(record.id);
  if (found != known_.end() && found->second.expired()) {
    known_.erase(found);
  }
  const auto deleted = catalog_.layers().Delete(record.id);
  if (!deleted && deleted.error().code() != ErrorCode::kNotFound) {
    if (deleted.error().code() != ErrorCode::kConflict) {
      log::Error("layer_not_deleted", {{"layer", record.id}, {"error", deleted.error().message()}});
    }
    return;  // somebody in the catalog uses it
  }
  if (record.storage == LayerStorage::kFile) {
    ::unlink(PathOf(record).c_str());
  }
}

Result<void> LayerFolder::RemoveStrangers() {
  SPACE_TRY([[maybe_unused]] const auto unused, catalog_.layers().TakeUnused(), "clean layers");
  SPACE_TRY(const std::vector<LayerRecord> layers, catalog_.layers().List(), "clean layers");
  std::set<std::string> wanted;
  for (const LayerRecord& layer : layers) {
    wanted.insert(PathOf(layer));
  }
  for (const SnapshotKind kind :
       {SnapshotKind::kTemplate, SnapshotKind::kKept, SnapshotKind::kPause}) {
    SPACE_TRY(const std::vector<SnapshotRecord> snapshots, catalog_.snapshots().OfKind(kind),
              "clean layers");
    for (const SnapshotRecord& snapshot : snapshots) {
      wanted.insert(StatePath(snapshot.id));
      wanted.insert(WorkingSetPath(snapshot.id));
    }
  }
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    if (!wanted.contains(entry.path().string())) {
      std::filesystem::remove(entry.path(), error);
      log::Warn("leftover_removed", {{"file", entry.path().filename().string()}});
    }
  }
  return {};
}

}  // namespace space
