// Parts of Node that several of its files need.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/steady_timer.hpp>

#include "node/node.h"

namespace space {

// kNotFound in the words of E2B.md 2.1.
tl::unexpected<Error> NoSandbox(std::string_view id);

// Ends with its scope, and never lasts longer than `limit`: a guest that is waited for must not
// keep others out.
class Node::Turn {
 public:
  Turn(std::shared_ptr<Crowd> crowd, std::chrono::milliseconds limit)
      : place_(std::make_shared<Place>(std::move(crowd))), timer_(place_->crowd->executor, limit) {
    timer_.async_wait([place = place_](const boost::system::error_code& error) {
      if (!error) {
        place->Leave();
      }
    });
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  Turn(Turn&&) = delete;
  Turn& operator=(Turn&&) = delete;
  ~Turn() { place_->Leave(); }

 private:
  struct Place {
    explicit Place(std::shared_ptr<Crowd> crowd_in) : crowd(std::move(crowd_in)) { ++crowd->count; }
    void Leave() {
      if (!std::exchange(has_left, true)) {
        --crowd->count;
        ++crowd->left;
        crowd->changed.Notify();
      }
    }
    const std::shared_ptr<Crowd> crowd;
    bool has_left = false;
  };

  std::shared_ptr<Place> place_;
  asio::steady_timer timer_;
};
// A boot loads all CPUs that it has until the guest says hello. Restoring takes moments, and so
// does what the agent is asked then: who takes longer than that waits for something else.
constexpr std::chrono::milliseconds kBootTurn{60'000};
constexpr std::chrono::milliseconds kRestoreTurn{5'000};

// What a create will be made of.
struct Node::CreatePlan {
  Template base;  // at the bottom
  std::string template_id;
  std::string alias;
  SandboxSize size;
  std::optional<SnapshotRecord> snapshot;  // else the base's variant of this size
  TextMap environment;
};

// A template in one size, as it is now: its snapshot, and VMs restored from it that wait.
struct Node::Variant {
  Variant(const asio::any_io_executor& executor, std::string fingerprint_in, Template base_in,
          SandboxSize size_in, bool is_default_in)
      : fingerprint(std::move(fingerprint_in)),
        base(std::move(base_in)),
        size(size_in),
        is_default(is_default_in),
        changed(executor) {}

  const std::string fingerprint;
  const Template base;
  const SandboxSize size;
  const bool is_default;  // the template's own size: its pool is kept full
  ImagePointer image;     // null until it is built or found
  bool is_building = false;
  std::optional<Error> build_error;
  http::Event changed;
  std::deque<SandboxPointer> idle;
  bool is_filling = false;
  bool is_old = false;  // something it was made of has changed
  Micros used_at = 0;
  Micros used_stored_at = 0;
  uint64_t pooled = 0;  // creations served
  uint64_t on_demand = 0;
  uint64_t booted = 0;
};

struct Node::SnapshotOrder {
  SandboxState during = SandboxState::kSnapshotting;  // of a stored sandbox, which is kRunning
  bool is_in_memory = false;                          // for a branch; else files, durable
  bool stays_paused = false;
};

}  // namespace space
