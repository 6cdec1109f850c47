// The counters behind torch.tpu.memory_allocated() and its kin: relaxed atomics, a slot a device.
#include "tensor/memory.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "pjrt/environment.h"

namespace torch_tpu {
namespace {

// c10::DeviceIndex is an int8_t.
constexpr int kMaxDevices = 128;

void raise(std::atomic<int64_t>& peak, int64_t now) noexcept {
  int64_t before = peak.load(std::memory_order_relaxed);
  while (now > before && !peak.compare_exchange_weak(before, now, std::memory_order_relaxed)) {
  }
}

class Counter {
 public:
  void add(int64_t n) noexcept {
    const int64_t now = current_.fetch_add(n, std::memory_order_relaxed) + n;
    allocated_.fetch_add(n, std::memory_order_relaxed);
    raise(peak_, now);
  }
  void subtract(int64_t n) noexcept {
    current_.fetch_sub(n, std::memory_order_relaxed);
    freed_.fetch_add(n, std::memory_order_relaxed);
  }
  MemoryCounters::Counts read() const noexcept {
    return {current_.load(std::memory_order_relaxed), peak_.load(std::memory_order_relaxed),
            allocated_.load(std::memory_order_relaxed), freed_.load(std::memory_order_relaxed)};
  }
  void reset_peak() noexcept { peak_.store(current_.load(std::memory_order_relaxed), std::memory_order_relaxed); }
  void reset_accumulated() noexcept {
    allocated_.store(0, std::memory_order_relaxed);
    freed_.store(0, std::memory_order_relaxed);
  }

 private:
  std::atomic<int64_t> current_{0}, peak_{0}, allocated_{0}, freed_{0};
};

constexpr int64_t kNotSet = -1;

struct Slot {
  Counter bytes;
  Counter buffers;
  std::atomic<int64_t> peak_with_scratch{0};
  std::atomic<int64_t> limit{kNotSet};
};

Slot& slot(int device) noexcept {
  static std::array<Slot, kMaxDevices> slots;
  return slots[device >= 0 && device < kMaxDevices ? device : 0];
}

}  // namespace

void MemoryCounters::on_alloc(int device, size_t nbytes) noexcept {
  slot(device).bytes.add(static_cast<int64_t>(nbytes));
  slot(device).buffers.add(1);
}

void MemoryCounters::on_free(int device, size_t nbytes) noexcept {
  slot(device).bytes.subtract(static_cast<int64_t>(nbytes));
  slot(device).buffers.subtract(1);
}

MemoryCounters::Snapshot MemoryCounters::read(int device) noexcept {
  const Slot& s = slot(device);
  const Counts bytes = s.bytes.read();
  return {bytes, s.buffers.read(), std::max(bytes.peak, s.peak_with_scratch.load(std::memory_order_relaxed))};
}

void MemoryCounters::on_run(int device, int64_t scratch) noexcept {
  Slot& s = slot(device);
  raise(s.peak_with_scratch, s.bytes.read().current + scratch);
}

void MemoryCounters::reset_peak(int device) noexcept {
  slot(device).bytes.reset_peak();
  slot(device).buffers.reset_peak();
  slot(device).peak_with_scratch.store(0, std::memory_order_relaxed);
}

void MemoryCounters::reset_accumulated(int device) noexcept {
  slot(device).bytes.reset_accumulated();
  slot(device).buffers.reset_accumulated();
}

int64_t MemoryCounters::limit(int device) {
  const int64_t set = slot(device).limit.load(std::memory_order_relaxed);
  if (set != kNotSet) return set;
  static const int64_t of_environment = environment_bytes("TORCH_TPU_MEMORY_LIMIT", 0);
  return of_environment;
}

void MemoryCounters::set_limit(int device, int64_t bytes) noexcept {
  slot(device).limit.store(bytes, std::memory_order_relaxed);
}

}  // namespace torch_tpu
