// See partition.h.
#include "lowerings/partition.h"

#include <atomic>

namespace torch_tpu {

namespace {
std::atomic<int64_t> parts_of_batch{1};
}  // namespace

int64_t batch_parts() { return parts_of_batch; }
void set_batch_parts(int64_t parts) { parts_of_batch = parts; }

}  // namespace torch_tpu
