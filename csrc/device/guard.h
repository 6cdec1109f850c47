// Which devices there are, which one and which stream is current in this thread.
// Everything here answers without loading a plugin. Thread-safe; currency is per thread.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace torch_tpu {

// The number of devices; 0 if no plugin is installed. Constant from the start of the process
// (PyTorch's autograd engine sizes its queues by it), but for devices that the client then lacks.
int device_count() noexcept;

int current_device() noexcept;

// Makes `device` current in this thread and returns the previous one. Throws if there is no such
// device.
int exchange_device(int device);

// `device`, or the current one for -1. Throws if there is no such device.
int checked_device(int device);

// True once a thread other than the first has made a device current, as those of PyTorch's autograd engine do.
bool other_threads_choose_devices() noexcept;

// The current stream of `device` in this thread. Streams are labels: each device runs its work in
// one queue, in the order it was submitted.
int64_t current_stream(int device) noexcept;
// Makes stream `id` of `device` current in this thread and returns the previous one's id.
int64_t exchange_stream(int device, int64_t id) noexcept;

}  // namespace torch_tpu
