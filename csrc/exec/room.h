// Room on a device: what is asked for before buffers are made, and what is done when there is none.
// Then what can be freed is freed, and the work is done once more.
// Thread-safe.
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <string>

namespace torch_tpu {

// Throws c10::OutOfMemoryError if `bytes` more would exceed the limit that is set on the device
// (MemoryCounters::limit). Nothing is set aside.
void check_room(int device, int64_t bytes);

// Frees what can be freed: tensors in Python's garbage, what only recorded programs and programs in the queue need,
// and idle host blocks of the CPU plugin. REQUIRES: no lock is held that a thread with Python's own lock may wait for.
void make_room(int device);
// True while this thread does.
bool making_room();

// `error`, and what the device holds, as another c10::OutOfMemoryError. Counts it.
[[noreturn]] void throw_no_room(int device, const c10::OutOfMemoryError& error);

// work(last): what work(false) returns; if it throws c10::OutOfMemoryError, make_room() and what work(true) returns.
// REQUIRES: as make_room(); and that work(false) can be done again after it threw.
template <typename Work>
auto with_room(int device, const Work& work) {
  try {
    return work(false);
  } catch (const c10::OutOfMemoryError&) {
    if (making_room()) throw;
  }
  make_room(device);
  try {
    return work(true);
  } catch (const c10::OutOfMemoryError& error) {
    throw_no_room(device, error);
  }
}

// How often work was done again, and how often in vain.
struct RoomCounts {
  int64_t retries = 0, failures = 0;
};
RoomCounts room_counts();
void reset_room_counts();

// `collect` frees Python's garbage; `largest` says where the most bytes were made, "" if that is not known.
// Set once by the Python layer; each takes Python's lock.
void set_python_memory(void (*collect)(), std::string (*largest)(int device));

}  // namespace torch_tpu
