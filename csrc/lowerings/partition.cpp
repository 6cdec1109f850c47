// See partition.h.
#include "lowerings/partition.h"

#include <atomic>

namespace torch_tpu {

namespace {
std::atomic<int64_t> parts_of_batch{1};
std::atomic<int64_t> parts_of_heads{1};
}  // namespace

Parts parts() { return {parts_of_batch, parts_of_heads}; }

void set_parts(const Parts& parts) {
  parts_of_batch = parts.batch;
  parts_of_heads = parts.heads;
}

}  // namespace torch_tpu
