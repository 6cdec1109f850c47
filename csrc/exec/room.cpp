#include "exec/room.h"

#include <atomic>
#include <iomanip>
#include <sstream>
#include <string>

#include "exec/policy.h"
#include "pjrt/host_blocks.h"
#include "tensor/memory.h"

namespace torch_tpu {

namespace {

std::atomic<int64_t> retries{0}, failures{0};
std::atomic<void (*)()> collect_garbage{nullptr};
std::atomic<std::string (*)(int)> largest_sites{nullptr};
thread_local bool busy = false;

std::string in_words(int64_t bytes) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(2);
  const auto n = static_cast<double>(bytes);
  if (bytes >= int64_t{1} << 30) {
    out << n / (1 << 30) << " GiB";
  } else {
    out << n / (1 << 20) << " MiB";
  }
  return out.str();
}

}  // namespace

void check_room(int device, int64_t bytes) {
  const int64_t limit = MemoryCounters::limit(device);
  if (limit <= 0 || bytes <= 0) return;
  const int64_t held = MemoryCounters::read(device).bytes.current;
  TORCH_CHECK_WITH(OutOfMemoryError, held + bytes <= limit, "tpu: out of memory on tpu:", device, ": got ",
                   in_words(bytes), " to make, with ", in_words(held), " held; expected at most ", in_words(limit),
                   " (TORCH_TPU_MEMORY_LIMIT, or set_per_process_memory_fraction).");
}

bool making_room() { return busy; }

void make_room(int device) {
  struct Busy {
    Busy() { busy = true; }
    ~Busy() { busy = false; }
  } guard;
  ++retries;
  if (const auto collect = collect_garbage.load()) collect();
  wait_for_queue(device);  // what is queued holds its inputs and scratch memory
  pjrt::release_host_blocks();
  try {
    synchronize(device);
  } catch (const c10::OutOfMemoryError&) {
    // What is recorded has no room either. It stays recorded, and is run, or refused, by whoever needs it.
  }
}

void throw_no_room(int device, const c10::OutOfMemoryError& error) {
  ++failures;
  const auto held = MemoryCounters::read(device);
  const auto largest = largest_sites.load();
  const std::string where = largest == nullptr ? "" : largest(device);
  TORCH_CHECK_WITH(OutOfMemoryError, false, error.what_without_backtrace(), "\nHeld by tpu:", device,
                   ", after what can be freed was freed: ", in_words(held.bytes.current), " in ", held.buffers.current,
                   " buffers (at most ", in_words(held.bytes.peak), " so far).",
                   where.empty() ? "\nTo see where they were made: torch.tpu.memory._record_memory_history() at the "
                                   "start; this message then tells."
                                 : "\nMade at:" + where,
                   "\nUse a smaller batch, bfloat16 or torch.utils.checkpoint, drop tensors that are no longer needed, "
                   "or spread the model over more devices.");
}

RoomCounts room_counts() { return {retries, failures}; }

void reset_room_counts() { retries = failures = 0; }

void set_python_memory(void (*collect)(), std::string (*largest)(int device)) {
  collect_garbage = collect;
  largest_sites = largest;
}

}  // namespace torch_tpu
