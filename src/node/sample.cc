// What running sandboxes use, asked of their agents again and again and kept in the catalog.
#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "base/log.h"
#include "http/spawn.h"
#include "node/node.h"

namespace space {
namespace {

using std::chrono::steady_clock;

// After each question it rests this many times as long as the answer took: however many sandboxes
// there are and however slow they answer, asking costs no more than a fifth of a processor.
constexpr int kRestFactor = 4;

}  // namespace

asio::awaitable<void> Node::SampleOne(SandboxPointer sandbox) {
  auto point = co_await FetchMetrics(sandbox->vmm, sandbox->record.envd_token);
  if (!point && point.error().code() == ErrorCode::kInternal) {
    SPACE_LOG_LIMITED(log::Level::kWarn, "metrics_refused", {"sandbox_id", sandbox->record.id},
                      {"error", point.error().message()});
  }
  if (!point || sandbox->is_gone) {
    co_return;  // busy, pausing or ending: the next round asks again
  }
  point->at = Now();
  if (const auto kept = catalog_.metrics().Put(sandbox->record.id, *point); !kept) {
    SPACE_LOG_LIMITED(log::Level::kWarn, "metrics_not_kept", {"sandbox_id", sandbox->record.id},
                      {"error", kept.error().message()});
  }
}

asio::awaitable<void> Node::SampleLoop() {
  asio::steady_timer timer(executor_);
  for (;;) {
    const auto begun = steady_clock::now();
    std::vector<SandboxPointer> all;
    for (const auto& [id, sandbox] : live_) {
      all.push_back(sandbox);
    }
    for (const SandboxPointer& sandbox : all) {
      if (sandbox->record.state != SandboxState::kRunning || !sandbox->is_usable() ||
          sandbox->vmm == nullptr) {
        continue;
      }
      const auto asked = steady_clock::now();
      co_await SampleOne(sandbox);
      timer.expires_after((steady_clock::now() - asked) * kRestFactor);
      if (const auto [error] = co_await timer.async_wait(http::kNoThrow); error) {
        co_return;
      }
    }
    const Micros retention = std::chrono::microseconds(config_.metrics_retention).count();
    if (const auto forgotten = catalog_.metrics().ForgetBefore(Now() - retention); !forgotten) {
      log::Error("forget_metrics_failed", {{"error", forgotten.error().message()}});
    }
    timer.expires_at(begun + config_.metrics_interval);
    if (const auto [error] = co_await timer.async_wait(http::kNoThrow); error) {
      co_return;
    }
  }
}

}  // namespace space
