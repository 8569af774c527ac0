#include "virtio/mmio_transport.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/bytes.h"
#include "base/log.h"
#include "state/state.h"

namespace space {
namespace {

// Virtio 1.2, 4.2.2.
enum Register : uint64_t {
  kMagicValue = 0x000,
  kVersion = 0x004,
  kDeviceId = 0x008,
  kVendorId = 0x00c,
  kDeviceFeatures = 0x010,
  kDeviceFeaturesSelect = 0x014,
  kDriverFeatures = 0x020,
  kDriverFeaturesSelect = 0x024,
  kQueueSelect = 0x030,
  kQueueSizeMax = 0x034,
  kQueueSize = 0x038,
  kQueueReady = 0x044,
  kQueueNotify = 0x050,
  kInterruptStatus = 0x060,
  kInterruptAcknowledge = 0x064,
  kStatus = 0x070,
  kQueueDescriptorsLow = 0x080,
  kQueueDescriptorsHigh = 0x084,
  kQueueAvailableLow = 0x090,
  kQueueAvailableHigh = 0x094,
  kQueueUsedLow = 0x0a0,
  kQueueUsedHigh = 0x0a4,
  kSharedMemoryLengthLow = 0x0b0,
  kSharedMemoryBaseHigh = 0x0bc,
  kConfigGeneration = 0x0fc,
  kConfigSpace = 0x100,
};
static_assert(kQueueNotify == MmioTransport::kQueueNotifyOffset);

constexpr uint32_t kMagic = 0x74726976;  // "virt"
constexpr uint32_t kMmioVersion = 2;

// Virtio 1.2, 2.1.
enum StatusBit : uint32_t {
  kAcknowledge = 1,
  kDriver = 2,
  kDriverOk = 4,
  kFeaturesOk = 8,
  kNeedsReset = 64,
  kFailed = 128,
};

constexpr uint64_t kVersion1 = 1ULL << 32;
constexpr uint64_t kEventIdx = 1ULL << 29;

constexpr uint32_t kUsedInterrupt = 1;
constexpr uint32_t kConfigInterrupt = 2;

constexpr uint16_t kStateVersion = 1;
// A doorbell that came by an exit instead of the ioeventfd is the vCPU's own time, but not for
// ever.
constexpr int kMaxRoundsPerExit = 16;

uint32_t LowHalf(uint64_t value, uint32_t select) {
  return select > 1 ? 0 : static_cast<uint32_t>(value >> (32 * select));
}

void SetHalf(uint64_t& value, bool high, uint32_t half) {
  const int shift = high ? 32 : 0;
  value = (value & ~(0xffffffffULL << shift)) | (static_cast<uint64_t>(half) << shift);
}

}  // namespace

MmioTransport::MmioTransport(std::unique_ptr<VirtioDevice> device, const GuestMemory& memory,
                             std::function<void()> raise_irq)
    : device_(std::move(device)),
      memory_(&memory),
      raise_irq_(std::move(raise_irq)),
      slots_(device_->queue_sizes().size()) {}

MmioTransport::~MmioTransport() = default;

void MmioTransport::SignalUsed() {
  interrupt_status_.fetch_or(kUsedInterrupt);
  raise_irq_();
}

void MmioTransport::SignalConfig() {
  config_generation_.fetch_add(1);
  interrupt_status_.fetch_or(kConfigInterrupt);
  raise_irq_();
}

uint64_t MmioTransport::OfferedFeatures() const {
  return device_->features() | kVersion1 | kEventIdx;
}

void MmioTransport::Read(uint64_t offset, std::span<std::byte> into) {
  std::ranges::fill(into, std::byte{0});
  if (offset >= kConfigSpace) {
    const std::lock_guard lock(mutex_);
    ReadConfig(offset - kConfigSpace, into);
    return;
  }
  if (into.size() != sizeof(uint32_t) || offset % sizeof(uint32_t) != 0) {
    return;
  }
  uint32_t value = 0;
  if (offset == kInterruptStatus) {
    value = interrupt_status_.load();
  } else {
    const std::lock_guard lock(mutex_);
    value = ReadRegister(offset);
  }
  std::memcpy(into.data(), &value, sizeof(value));
}

uint32_t MmioTransport::ReadRegister(uint64_t offset) const {
  const bool has_queue = queue_select_ < slots_.size();
  switch (offset) {
    case kMagicValue:
      return kMagic;
    case kVersion:
      return kMmioVersion;
    case kDeviceId:
      return static_cast<uint32_t>(device_->type());
    case kDeviceFeatures:
      return LowHalf(OfferedFeatures(), device_features_select_);
    case kQueueSizeMax:
      return has_queue ? device_->queue_sizes()[queue_select_] : 0;
    case kQueueReady:
      return has_queue && slots_[queue_select_].is_ready ? 1 : 0;
    case kStatus:
      return status_;
    case kConfigGeneration:
      return config_generation_.load();
    default:
      // No shared memory regions: length and base read as -1.
      return offset >= kSharedMemoryLengthLow && offset <= kSharedMemoryBaseHigh ? ~0U : 0;
  }
}

void MmioTransport::ReadConfig(uint64_t offset, std::span<std::byte> into) const {
  const std::span<const std::byte> config = device_->config();
  if (offset < config.size()) {
    const size_t length = std::min<uint64_t>(into.size(), config.size() - offset);
    std::ranges::copy(config.subspan(offset, length), into.begin());
  }
}

void MmioTransport::Write(uint64_t offset, std::span<const std::byte> from) {
  if (from.size() != sizeof(uint32_t) || offset % sizeof(uint32_t) != 0) {
    return;
  }
  uint32_t value = 0;
  std::memcpy(&value, from.data(), sizeof(value));
  if (offset == kInterruptAcknowledge) {
    interrupt_status_.fetch_and(~value);
    return;
  }
  const std::lock_guard lock(mutex_);
  WriteRegister(offset, value);
}

void MmioTransport::WriteRegister(uint64_t offset, uint32_t value) {
  switch (offset) {
    case kDeviceFeaturesSelect:
      device_features_select_ = value;
      return;
    case kDriverFeaturesSelect:
      driver_features_select_ = value;
      return;
    case kDriverFeatures:
      // Only between DRIVER and FEATURES_OK (virtio 1.2, 3.1.1).
      if ((status_ & (kDriver | kFeaturesOk)) == kDriver && driver_features_select_ <= 1) {
        SetHalf(driver_features_, driver_features_select_ == 1, value);
      }
      return;
    case kQueueSelect:
      queue_select_ = value;
      return;
    case kQueueNotify:
      for (int round = 0; round < kMaxRoundsPerExit && NotifyLocked(value); ++round) {
      }
      return;
    case kStatus:
      WriteStatus(value);
      return;
    default:
      WriteQueueRegister(offset, value);
  }
}

void MmioTransport::WriteQueueRegister(uint64_t offset, uint32_t value) {
  // Queues are set up between FEATURES_OK and DRIVER_OK, and not while they are ready.
  constexpr uint32_t kMask = kFeaturesOk | kDriverOk | kNeedsReset | kFailed;
  if ((status_ & kMask) != kFeaturesOk || queue_select_ >= slots_.size()) {
    return;
  }
  QueueSlot& slot = slots_[queue_select_];
  if (offset == kQueueReady) {
    slot.is_ready = value == 1;
    return;
  }
  if (slot.is_ready) {
    return;
  }
  switch (offset) {
    case kQueueSize:
      // A size that is no queue's is kept as 0, which Activate refuses.
      slot.size = value <= device_->queue_sizes()[queue_select_] ? static_cast<uint16_t>(value) : 0;
      return;
    case kQueueDescriptorsLow:
    case kQueueDescriptorsHigh:
      return SetHalf(slot.descriptors, offset == kQueueDescriptorsHigh, value);
    case kQueueAvailableLow:
    case kQueueAvailableHigh:
      return SetHalf(slot.available, offset == kQueueAvailableHigh, value);
    case kQueueUsedLow:
    case kQueueUsedHigh:
      return SetHalf(slot.used, offset == kQueueUsedHigh, value);
    default:
      return;
  }
}

// The driver may only add bits, in order; anything else is ignored, but for 0, which resets.
void MmioTransport::WriteStatus(uint32_t value) {
  if (value == 0) {
    ResetAll();
    return;
  }
  const uint32_t added = value & ~status_;
  if ((status_ & (kNeedsReset | kFailed)) != 0) {
    return;
  }
  if ((added & kFailed) != 0) {
    status_ |= kFailed;  // the driver gave up
    Stop();
    return;
  }
  status_ |= added & kAcknowledge;
  if ((added & kDriver) != 0 && (status_ & kAcknowledge) != 0) {
    status_ |= kDriver;
  }
  if ((added & kFeaturesOk) != 0 && (status_ & kDriver) != 0) {
    const bool is_acceptable =
        (driver_features_ & ~OfferedFeatures()) == 0 && (driver_features_ & kVersion1) != 0;
    // Left clear, the driver reads back that its choice does not work (virtio 1.2, 3.1.1).
    if (is_acceptable) {
      status_ |= kFeaturesOk;
    }
  }
  if ((added & kDriverOk) != 0 && (status_ & kFeaturesOk) != 0) {
    status_ |= kDriverOk;
    Activate();
  }
}

Result<void> MmioTransport::BuildQueues() {
  queues_.clear();
  for (const QueueSlot& slot : slots_) {
    if (!slot.is_ready) {
      queues_.push_back(Queue::Disabled());
      continue;
    }
    const QueueLayout layout{.size = slot.size,
                             .descriptors = {slot.descriptors},
                             .available = {slot.available},
                             .used = {slot.used}};
    SPACE_TRY(Queue queue, Queue::Create(*memory_, layout, (driver_features_ & kEventIdx) != 0),
              "set up queue");
    queues_.push_back(std::move(queue));
  }
  return {};
}

void MmioTransport::Activate() {
  const Result<void> built = BuildQueues();
  if (!built.has_value()) {
    return Judge(built);
  }
  is_active_ = true;
  Judge(device_->Activate(queues_, driver_features_, *this));
}

// The device touches no ring and no descriptor afterwards.
void MmioTransport::Stop() {
  if (is_active_) {
    is_active_ = false;
    device_->Reset();
  }
}

void MmioTransport::ResetAll() {
  Stop();
  queues_.clear();
  std::ranges::fill(slots_, QueueSlot{});
  status_ = 0;
  driver_features_ = 0;
  device_features_select_ = 0;
  driver_features_select_ = 0;
  queue_select_ = 0;
  interrupt_status_.store(0);
}

// A failed call stops the device until the driver resets it, whoever's fault it was.
void MmioTransport::Judge(const Result<void>& outcome) {
  if (outcome.has_value()) {
    return;
  }
  if (outcome.error().code() == ErrorCode::kGuestFault) {
    guest_faults_.fetch_add(1);
  }
  SPACE_LOG_LIMITED(log::Level::kWarn, "device_stopped", {"device", device_->name()},
                    {"why", outcome.error().message()});
  status_ |= kNeedsReset;
  Stop();
  SignalConfig();
}

bool MmioTransport::NotifyLocked(size_t queue_index) {
  if (!is_active_ || queue_index >= queues_.size()) {
    return false;
  }
  const Result<bool> more = device_->OnQueueReady(queue_index);
  if (!more.has_value()) {
    Judge(Fail(more.error()));
    return false;
  }
  return *more;
}

bool MmioTransport::OnQueueNotify(size_t queue_index) {
  const std::lock_guard lock(mutex_);
  return NotifyLocked(queue_index);
}

void MmioTransport::OnHostReady(uint64_t token, uint32_t events) {
  const std::lock_guard lock(mutex_);
  Judge(device_->OnHostReady(token, events));
}

void MmioTransport::KickAll() {
  const std::lock_guard lock(mutex_);
  for (size_t at = 0; at < queues_.size(); ++at) {
    for (int round = 0; round < kMaxRoundsPerExit && NotifyLocked(at); ++round) {
    }
  }
  if (interrupt_status_.load() != 0) {
    raise_irq_();
  }
}

void MmioTransport::Save(StateWriter& out) const {
  ByteWriter body;
  body.Put(status_);
  body.Put(interrupt_status_.load());
  body.Put(config_generation_.load());
  body.Put(device_features_select_);
  body.Put(driver_features_select_);
  body.Put(driver_features_);
  body.Put(queue_select_);
  body.Put(static_cast<uint8_t>(is_active_));
  body.Put(static_cast<uint32_t>(slots_.size()));
  for (size_t at = 0; at < slots_.size(); ++at) {
    const QueueSlot& slot = slots_[at];
    body.Put(slot.size);
    body.Put(static_cast<uint8_t>(slot.is_ready));
    body.Put(slot.descriptors);
    body.Put(slot.available);
    body.Put(slot.used);
    body.Put(at < queues_.size() ? queues_[at].next_available() : uint16_t{0});
    body.Put(at < queues_.size() ? queues_[at].next_used() : uint16_t{0});
  }
  out.Add("mmio", kStateVersion, body.bytes());
  device_->Save(out);
}

Result<void> MmioTransport::Restore(StateReader& in) {
  const std::lock_guard lock(mutex_);
  SPACE_TRY(const StateSection section, in.Require("mmio", kStateVersion), "restore transport");
  ByteReader body(section.body);
  SPACE_TRY(status_, body.Get<uint32_t>(), "restore status");
  SPACE_TRY(interrupt_status_, body.Get<uint32_t>(), "restore interrupt status");
  SPACE_TRY(config_generation_, body.Get<uint32_t>(), "restore config generation");
  SPACE_TRY(device_features_select_, body.Get<uint32_t>(), "restore features");
  SPACE_TRY(driver_features_select_, body.Get<uint32_t>(), "restore features");
  SPACE_TRY(driver_features_, body.Get<uint64_t>(), "restore features");
  SPACE_TRY(queue_select_, body.Get<uint32_t>(), "restore queue select");
  SPACE_TRY(const uint8_t was_active, body.Get<uint8_t>(), "restore activity");
  SPACE_TRY(const uint32_t queues, body.Get<uint32_t>(), "restore queues");
  if (queues != slots_.size()) {
    return Fail(ErrorCode::kInvalidArgument, "saved device has another number of queues",
                device_->name());
  }
  std::vector<std::pair<uint16_t, uint16_t>> indices;
  for (QueueSlot& slot : slots_) {
    SPACE_TRY(slot.size, body.Get<uint16_t>(), "restore queue");
    SPACE_TRY(const uint8_t is_ready, body.Get<uint8_t>(), "restore queue");
    slot.is_ready = is_ready == 1;
    SPACE_TRY(slot.descriptors, body.Get<uint64_t>(), "restore queue");
    SPACE_TRY(slot.available, body.Get<uint64_t>(), "restore queue");
    SPACE_TRY(slot.used, body.Get<uint64_t>(), "restore queue");
    SPACE_TRY(const uint16_t next_available, body.Get<uint16_t>(), "restore queue");
    SPACE_TRY(const uint16_t next_used, body.Get<uint16_t>(), "restore queue");
    indices.emplace_back(next_available, next_used);
  }
  SPACE_TRY_VOID(body.Finish(), "restore transport");
  SPACE_TRY_VOID(device_->Restore(in), "restore device");
  if (was_active != 0) {
    SPACE_TRY_VOID(BuildQueues(), "restore queues");
    for (size_t at = 0; at < queues_.size(); ++at) {
      queues_[at].SetIndices(indices[at].first, indices[at].second);
    }
    is_active_ = true;
    SPACE_TRY_VOID(device_->Activate(queues_, driver_features_, *this), "restore device");
  }
  return {};
}

}  // namespace space
