// How many devices will share a program that is being recorded, for lowerings whose best form depends on a
// device's part. Set for as long as an ahead-of-time session lasts; 1 otherwise. Thread-safe.
#pragma once

#include <cstdint>

namespace torch_tpu {

struct Parts {
  int64_t batch = 1;  // devices that share the batch, the first dimension of the inputs, evenly
  int64_t heads = 1;  // devices that share an attention's heads, as far as those divide
};

Parts parts();
void set_parts(const Parts& parts);

}  // namespace torch_tpu
