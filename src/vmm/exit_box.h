// Why the VM ends: the first reason given wins, later ones follow from it. Any thread.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "wire/vmm_control.h"

namespace space {

class ExitBox {
 public:
  // `on_first` is called once, on the thread that reports first.
  explicit ExitBox(std::function<void()> on_first) : on_first_(std::move(on_first)) {}

  void Report(wire::ExitReason reason, std::string detail = {}) {
    {
      const std::lock_guard lock(mutex_);
      if (exit_) {
        return;
      }
      exit_ = wire::Exit{reason, std::move(detail)};
    }
    on_first_();
  }
  std::optional<wire::Exit> Get() const {
    const std::lock_guard lock(mutex_);
    return exit_;
  }

 private:
  std::function<void()> on_first_;
  mutable std::mutex mutex_;
  std::optional<wire::Exit> exit_;
};

}  // namespace space
