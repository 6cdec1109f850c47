// How many devices will share a program that is being recorded, for lowerings whose best form depends on a
// device's part. Set for as long as an ahead-of-time session lasts; 1 otherwise. Thread-safe.
#pragma once

#include <cstdint>

namespace torch_tpu {

// Devices that share the batch, the first dimension of the inputs, evenly.
int64_t batch_parts();
void set_batch_parts(int64_t parts);

}  // namespace torch_tpu
