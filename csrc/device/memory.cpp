// Allocators: cells for storages, with PyTorch's memory statistics, and aligned host memory.
#include "device/memory.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <string>

#include "device/guard.h"
#include "device/synchronize.h"
#include "pjrt/host_blocks.h"
#include "pjrt/pjrt.h"
#include "tensor/cell.h"
#include "tensor/fork.h"
#include "tensor/memory.h"

namespace torch_tpu {
namespace {

void delete_cell(void* cell) { delete static_cast<Cell*>(cell); }

c10::DataPtr make_cell(size_t nbytes, int device) {
  auto* cell = new Cell(nbytes, device);
  return {cell, cell, &delete_cell, c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device))};
}

void set_stat(c10::CachingAllocator::StatArray& stats, const MemoryCounters::Counts& counts) {
  auto& stat = stats[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
  stat.current = counts.current;
  stat.peak = counts.peak;
  stat.allocated = counts.allocated;
  stat.freed = counts.freed;
}

// (free, total) bytes of the host, which is what the CPU plugin allocates from.
std::pair<size_t, size_t> host_memory() {
  size_t total = 0, available = 0, kilobytes = 0;
  std::string name, unit;
  std::ifstream meminfo("/proc/meminfo");
  while (meminfo >> name >> kilobytes && std::getline(meminfo, unit)) {
    total = name == "MemTotal:" ? kilobytes * 1024 : total;
    available = name == "MemAvailable:" ? kilobytes * 1024 : available;
  }
  return {available, total};
}

void run_recorded(int device) {
  if (!in_forked_child()) {
    flush_device(device);
  }
}

struct CellAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t nbytes) override { return make_cell(nbytes, current_device()); }
  c10::DeleterFnPtr raw_deleter() const override { return &delete_cell; }
  void copy_data(void*, const void*, std::size_t) const override {
    TORCH_CHECK(false, "tpu: device memory has no address to copy from.\nCopy tensors with copy_().");
  }

  bool initialized() override { return true; }
  // Nothing is cached: a buffer is freed when the last value that needs it goes.
  void emptyCache(c10::MempoolId_t) override { pjrt::release_host_blocks(); }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const auto counts = read_memory(checked_device(device));
    c10::CachingDeviceAllocator::DeviceStats stats;
    for (auto* bytes : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes}) {
      set_stat(*bytes, counts.bytes);
    }
    stats.reserved_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak =
        counts.peak_with_scratch;
    for (auto* buffers : {&stats.allocation, &stats.segment, &stats.active}) {
      set_stat(*buffers, counts.buffers);
    }
    stats.num_device_alloc = counts.buffers.allocated;
    stats.num_device_free = counts.buffers.freed;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    MemoryCounters::reset_accumulated(checked_device(device));
  }
  void resetPeakStats(c10::DeviceIndex device) override { reset_peak_memory(device); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return memory_info(checked_device(device));
  }
};

// The blocks that PinnedAllocator has given out: start -> size.
struct PinnedBlocks {
  std::mutex mutex;
  std::map<const char*, size_t> sizes;  // guarded by mutex
};

PinnedBlocks& pinned_blocks() {
  // A fork (a DataLoader worker) while another thread holds the lock would leave it held in the child.
  static auto* blocks = [] {
    pthread_atfork([] { pinned_blocks().mutex.lock(); }, [] { pinned_blocks().mutex.unlock(); },
                   [] { pinned_blocks().mutex.unlock(); });
    return new PinnedBlocks;
  }();
  return *blocks;
}

void free_pinned(void* data) {
  auto& blocks = pinned_blocks();
  {
    const std::lock_guard<std::mutex> lock(blocks.mutex);
    blocks.sizes.erase(static_cast<const char*>(data));
  }
  std::free(data);
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t nbytes) override {
    static const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t size = std::max<size_t>(1, (nbytes + page - 1) / page) * page;
    void* data = std::aligned_alloc(page, size);
    TORCH_CHECK(data != nullptr, "tpu: pinned host memory: got none; asked for ", nbytes,
                " bytes.\nUse smaller batches, or pin_memory=False.");
    auto& blocks = pinned_blocks();
    const std::lock_guard<std::mutex> lock(blocks.mutex);
    blocks.sizes.emplace(static_cast<const char*>(data), size);
    return {data, data, &free_pinned, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* to, const void* from, std::size_t nbytes) const override { std::memcpy(to, from, nbytes); }
};

std::atomic<void (*)(const c10::Storage&, size_t)> resizer{nullptr};

[[maybe_unused]] const bool registered = [] {
  c10::SetAllocator(c10::DeviceType::PrivateUse1, cell_allocator());
  return true;
}();

}  // namespace

c10::Allocator* cell_allocator() {
  static auto* allocator = new CellAllocator;
  return allocator;
}

MemoryCounters::Snapshot read_memory(int device) {
  run_recorded(device);
  return MemoryCounters::read(device);
}

void reset_peak_memory(int device) {
  run_recorded(checked_device(device));
  MemoryCounters::reset_peak(checked_device(device));
}

std::pair<size_t, size_t> memory_info(int device) {
  const auto stats = pjrt::Client::get().memory_stats(device);
  const auto limit = stats.find("bytes_limit");
  const auto used = stats.find("bytes_in_use");
  if (limit == stats.end() || used == stats.end() || limit->second <= 0) {
    return host_memory();
  }
  return {static_cast<size_t>(std::max<int64_t>(0, limit->second - used->second)), static_cast<size_t>(limit->second)};
}

c10::Allocator* pinned_allocator() {
  static auto* allocator = new PinnedAllocator;
  return allocator;
}

bool is_pinned(const void* data) {
  auto& blocks = pinned_blocks();
  const std::lock_guard<std::mutex> lock(blocks.mutex);
  auto after = blocks.sizes.upper_bound(static_cast<const char*>(data));
  if (after == blocks.sizes.begin()) {
    return false;
  }
  const auto& [start, size] = *std::prev(after);
  return static_cast<const char*>(data) < start + size;
}

void set_storage_resizer(void (*resize)(const c10::Storage& storage, size_t nbytes)) { resizer = resize; }

void resize_storage(const c10::Storage& storage, size_t nbytes) {
  auto* cell = static_cast<Cell*>(storage.data_ptr().get_context());
  const int device = storage.device().index();
  if (cell == nullptr || cell->get() == nullptr || nbytes == 0) {
    storage.set_data_ptr_noswap(make_cell(nbytes, device));
    storage.set_nbytes(nbytes);
    return;
  }
  auto* resize = resizer.load();
  TORCH_INTERNAL_ASSERT(resize != nullptr, "no layer above device/ has installed a storage resizer");
  resize(storage, nbytes);
}

}  // namespace torch_tpu
