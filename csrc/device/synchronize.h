// Lets the device layer wait for work without knowing who records it: the layer above installs
// the two functions when it registers itself.
// Install once, before any device work; the rest is thread-safe.
#pragma once

namespace torch_tpu {

// `synchronize(device)` runs what is recorded for `device` and waits until it is done.
void set_synchronizer(void (*synchronize)(int device));

// `flush(device)` runs what is recorded for `device` and does not wait.
void set_flusher(void (*flush)(int device));

void synchronize_device(int device);
void flush_device(int device);

}  // namespace torch_tpu
