#include "vmm/device_slot.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <string>

namespace space {
namespace {

Result<UniqueFd> MakeEvent() {
  UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event.valid()) {
    return FailErrno("create eventfd");
  }
  return event;
}

void SignalEvent(const UniqueFd& event) {
  constexpr uint64_t kOne = 1;
  // Fails only when the counter is full: then it is signalled anyway.
  [[maybe_unused]] const ssize_t written = ::write(event.get(), &kOne, sizeof(kOne));
}

}  // namespace

Result<std::unique_ptr<DeviceSlot>> DeviceSlot::Create(uint32_t index, WatchSet& watches) {
  if (index >= kMaxSlots) {
    return Fail(ErrorCode::kExhausted, "too many devices", std::to_string(index + 1));
  }
  SPACE_TRY(UniqueFd interrupt, MakeEvent(), "device interrupt");
  return std::unique_ptr<DeviceSlot>(new DeviceSlot(index, watches, std::move(interrupt)));
}

DeviceSlot::DeviceSlot(uint32_t index, WatchSet& watches, UniqueFd interrupt)
    : index_(index), watches_(&watches), interrupt_(std::move(interrupt)), doorbells_(*this) {}

DeviceSlot::~DeviceSlot() {
  for (const UniqueFd& event : doorbell_events_) {
    watches_->Unwatch(event.get());
  }
}

Result<void> DeviceSlot::Attach(std::unique_ptr<VirtioDevice> device, const GuestMemory& memory,
                                const kvm::Vm& vm, Bus& bus) {
  transport_ = std::make_unique<MmioTransport>(std::move(device), memory,
                                               [this] { SignalEvent(interrupt_); });
  SPACE_TRY_VOID(vm.AddIrqEvent(interrupt_, gsi()), "attach device");
  const GuestAddress doorbell{window() + MmioTransport::kQueueNotifyOffset};
  for (size_t queue = 0; queue < transport_->queue_count(); ++queue) {
    SPACE_TRY(UniqueFd event, MakeEvent(), "attach device");
    SPACE_TRY_VOID(vm.AddIoEvent(event, doorbell, static_cast<uint32_t>(queue)), "attach device");
    SPACE_TRY_VOID(watches_->Watch(event.get(), EPOLLIN, doorbells_, queue), "attach device");
    doorbell_events_.push_back(std::move(event));
  }
  bus.Add(window(), MmioTransport::kWindowBytes, *this);
  return {};
}

uint32_t DeviceSlot::window() const {
  return static_cast<uint32_t>(kFirstWindow + index_ * MmioTransport::kWindowBytes);
}

Result<void> DeviceSlot::Watch(int fd, uint32_t events, uint64_t token) {
  return watches_->Watch(fd, events, *this, token);
}

void DeviceSlot::Unwatch(int fd) { watches_->Unwatch(fd); }

void DeviceSlot::OnEvents(uint64_t token, uint32_t events) {
  transport_->OnHostReady(token, events);
}

void DeviceSlot::Read(uint64_t offset, std::span<std::byte> into) {
  transport_->Read(offset, into);
}

void DeviceSlot::Write(uint64_t offset, std::span<const std::byte> from) {
  transport_->Write(offset, from);
}

void DeviceSlot::Doorbells::OnEvents(uint64_t token, uint32_t /*events*/) {
  const UniqueFd& event = slot_->doorbell_events_[token];
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(event.get(), &count, sizeof(count));
  if (slot_->transport_->OnQueueNotify(token)) {
    SignalEvent(event);  // comes back after the other devices had their turn
  }
}

}  // namespace space
