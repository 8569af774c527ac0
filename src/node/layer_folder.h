// The layers of this node: files in data_dir/layers and memfds that we hold open. A layer goes, row
// and file, when neither the catalog names a user nor anybody here holds it. One io_context thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "catalog/catalog.h"

namespace space {

class LayerFolder;

struct Layer {
  Layer(std::weak_ptr<LayerFolder> folder_in, LayerRecord record_in)
      : record(std::move(record_in)), folder(std::move(folder_in)) {}
  ~Layer();
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  Layer(Layer&&) = delete;
  Layer& operator=(Layer&&) = delete;

  // False for a memfd of an earlier life of ours: a VM may have it, nobody can be given it.
  bool can_be_opened() const { return record.storage == LayerStorage::kFile || memory.valid(); }

  LayerRecord record;
  UniqueFd memory;  // kMemory: the memfd
  std::weak_ptr<LayerFolder> folder;
};
using LayerPointer = std::shared_ptr<Layer>;

// What a machine is made of, bottom first. Of a running sandbox the root's last one is its writable
// top; in a snapshot all are frozen.
struct LayerChains {
  std::vector<LayerPointer> memory;
  std::vector<LayerPointer> root;     // a raw image, then sparse ones
  std::vector<LayerPointer> modules;  // one raw image

  Chains Ids() const;
};

struct NewLayer {
  LayerPointer layer;
  UniqueFd fd;  // read-write; for kFile its description is locked, see IsHeldByOthers
};

class LayerFolder : public std::enable_shared_from_this<LayerFolder> {
 public:
  LayerFolder(const std::string& data_dir, Catalog& catalog)
      : folder_(data_dir + "/layers"), catalog_(catalog) {}

  Result<void> Prepare();  // makes the folder

  // An empty sparse layer for an image of `size_bytes`. Nobody knows it until it is stored.
  Result<NewLayer> Create(const std::string& team_id, LayerKind kind, LayerStorage storage,
                          uint64_t size_bytes);
  // The same on disk, with the id in its header that `like` has: it will stand for it.
  Result<NewLayer> CreateLike(const Layer& like);
  // An image file of the operator's as a raw layer of its own name, so that it stays as it is when
  // the image is replaced: a hard link, or a copy where that is not possible. The same image gives
  // the same layer.
  //   errors: kNotFound "image is missing" naming it
  Result<LayerPointer> Pin(const std::string& image_path);
  // One that the catalog or somebody here knows.
  Result<LayerPointer> Find(std::string_view id);
  // The layers that a user's rows name.
  Result<LayerChains> Load(const LayerUser& user);
  // Rows for all layers of `chains`, and `user` as their user. Inside the caller's transaction.
  Result<void> Store(const LayerUser& user, const std::string& team_id, const LayerChains& chains);

  //   errors: naming the layer; kNotFound when a file is missing or a memory layer was lost
  Result<UniqueFd> Open(const Layer& layer, bool is_writable = false) const;
  // Never written again: 0400, or sealed. Not yet in the catalog.
  Result<void> Freeze(Layer& layer);
  // Somebody else has the very description that Create gave away: a VMM took it over. Ours must be
  // closed before.
  Result<bool> IsHeldByOthers(const Layer& layer) const;

  std::string StatePath(std::string_view snapshot_id) const;
  std::string WorkingSetPath(std::string_view snapshot_id) const;
  Result<UniqueFd> CreateFile(const std::string& path) const;
  void RemoveSnapshotFiles(std::string_view snapshot_id) const;
  // Waits for the disk: names that were made are there after a power cut.
  Result<void> SyncNames() const;
  const std::string& path() const { return folder_; }

  // At the start: files without rows, rows without users.
  Result<void> RemoveStrangers();

 private:
  friend struct Layer;
  std::string PathOf(const LayerRecord& record) const;
  void Drop(const LayerRecord& record);
  LayerPointer Register(LayerRecord record);
  Result<NewLayer> MakeFile(LayerRecord record);

  std::string folder_;
  Catalog& catalog_;
  std::map<std::string, std::weak_ptr<Layer>, std::less<>> known_;
};

}  // namespace space
