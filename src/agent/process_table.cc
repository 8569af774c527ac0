#include "agent/process_table.h"

#include <sys/wait.h>

#include <csignal>

namespace space::agent {

ProcessTable::ProcessTable(const asio::any_io_executor& executor)
    : executor_(executor), child_signals_(executor) {}

void ProcessTable::StartReaping() {
  child_signals_.add(SIGCHLD);
  WaitForChild();
  Reap();  // what ended before the handler was there
}

void ProcessTable::WaitForChild() {
  child_signals_.async_wait([this](const boost::system::error_code& error, int) {
    if (!error) {
      Reap();
      WaitForChild();
    }
  });
}

void ProcessTable::Reap() {
  int status = 0;
  for (pid_t pid = waitpid(-1, &status, WNOHANG); pid > 0; pid = waitpid(-1, &status, WNOHANG)) {
    if (const auto own = unlisted_.find(pid); own != unlisted_.end()) {
      own->second->OnExit(status);
      unlisted_.erase(own);
      continue;
    }
    const auto found = entries_.find(pid);
    if (found != entries_.end() && !found->second.process->has_exited()) {
      found->second.process->OnExit(status);
    }
  }
  ForgetOld();
}

Result<void> ProcessTable::CheckRoom() {
  ForgetOld();
  if (Running().size() >= kMaxProcesses) {
    return Fail(ErrorCode::kExhausted, "too many processes are running");
  }
  return {};
}

void ProcessTable::Add(Entry entry) {
  const pid_t pid = entry.process->pid();
  entries_.insert_or_assign(pid, std::move(entry));  // a reused pid: the old one has ended
}

void ProcessTable::AddUnlisted(std::shared_ptr<Process> process) {
  const pid_t pid = process->pid();
  unlisted_.insert_or_assign(pid, std::move(process));
}

// No timer: entries are looked at whenever a child ends, one starts, or a client asks.
void ProcessTable::ForgetOld() {
  const auto now = Clock::now();
  for (auto item = entries_.begin(); item != entries_.end();) {
    Entry& entry = item->second;
    if (!entry.ended && entry.process->end()) {
      entry.ended = now;
    }
    const bool is_old = entry.ended && now - *entry.ended > kKeepAfterEnd;
    item = is_old ? entries_.erase(item) : std::next(item);
  }
}

Result<std::shared_ptr<Process>> ProcessTable::Find(const rpc::process::ProcessSelector& selector) {
  ForgetOld();
  if (selector.has_pid()) {
    const auto found = entries_.find(static_cast<pid_t>(selector.pid()));
    if (found != entries_.end()) {
      return found->second.process;
    }
    return Fail(ErrorCode::kNotFound,
                "process with pid " + std::to_string(selector.pid()) + " not found");
  }
  if (!selector.has_tag()) {
    return Fail(ErrorCode::kInvalidArgument, "process selector needs a pid or a tag");
  }
  const Entry* best = nullptr;
  for (const auto& [pid, entry] : entries_) {
    if (entry.tag == selector.tag() && (best == nullptr || best->process->end())) {
      best = &entry;
    }
  }
  if (best == nullptr) {
    return Fail(ErrorCode::kNotFound, "process with tag " + selector.tag() + " not found");
  }
  return best->process;
}

Result<std::shared_ptr<Process>> ProcessTable::FindRunning(
    const rpc::process::ProcessSelector& selector) {
  auto found = Find(selector);
  if (found && (*found)->end()) {
    return Fail(ErrorCode::kNotFound,
                "process with pid " + std::to_string((*found)->pid()) + " has ended");
  }
  return found;
}

std::vector<const ProcessTable::Entry*> ProcessTable::Running() const {
  std::vector<const Entry*> running;
  for (const auto& [pid, entry] : entries_) {
    if (!entry.process->end()) {
      running.push_back(&entry);
    }
  }
  return running;
}

}  // namespace space::agent
