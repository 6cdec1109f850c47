// Counts devices from what the machine shows, before any plugin is loaded.
// Called once a process.
#pragma once

namespace torch_tpu {

// TORCH_TPU_DEVICE_COUNT if it is set (at most the TPU's own count where that is known); else the
// TPU's cores, or 1 on a CPU plugin; 0 if no plugin is installed. Never throws.
int discover_devices() noexcept;

}  // namespace torch_tpu
