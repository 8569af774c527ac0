// The catalog of one node: what must survive a restart of spaced. One file, one thread.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "catalog/database.h"
#include "catalog/key_store.h"
#include "catalog/layer_store.h"
#include "catalog/metric_store.h"
#include "catalog/sandbox_store.h"
#include "catalog/snapshot_store.h"
#include "catalog/template_store.h"

namespace space {

class Catalog {
 public:
  // Opens or makes the file and brings its tables up to date.
  static Result<std::unique_ptr<Catalog>> Open(const std::string& path);

  KeyStore& keys() { return keys_; }
  SandboxStore& sandboxes() { return sandboxes_; }
  TemplateStore& templates() { return templates_; }
  LayerStore& layers() { return layers_; }
  SnapshotStore& snapshots() { return snapshots_; }
  MetricStore& metrics() { return metrics_; }

  // Several writes as one. No other one may be open, and no coroutine may wait before its Commit.
  Result<Transaction> Begin(Durability durability) {
    return Transaction::Begin(*database_, durability);
  }

 private:
  explicit Catalog(std::unique_ptr<Database> database)
      : database_(std::move(database)),
        keys_(*database_),
        sandboxes_(*database_),
        templates_(*database_),
        layers_(*database_),
        snapshots_(*database_),
        metrics_(*database_) {}

  std::unique_ptr<Database> database_;
  KeyStore keys_;
  SandboxStore sandboxes_;
  TemplateStore templates_;
  LayerStore layers_;
  SnapshotStore snapshots_;
  MetricStore metrics_;
};

}  // namespace space
