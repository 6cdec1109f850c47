// The fork guard: a pthread_atfork handler, registered when the library is loaded.
#include "tensor/fork.h"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <atomic>

#include "pjrt/pjrt.h"

namespace torch_tpu {
namespace {

std::atomic<bool> forked{false};

void after_fork_in_child() {
  if (pjrt::Client::is_created()) {
    forked.store(true, std::memory_order_relaxed);
  }
}

[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, after_fork_in_child);

}  // namespace

bool in_forked_child() noexcept { return forked.load(std::memory_order_relaxed); }

void check_not_forked() {
  TORCH_CHECK(!in_forked_child(),
              "tpu: the device cannot be used in a forked child: its parent had already opened it.\n"
              "Start the process with the 'spawn' method "
              "(torch.multiprocessing.set_start_method(\"spawn\"), or "
              "DataLoader(multiprocessing_context=\"spawn\")), or fork before the first use of the device.");
}

}  // namespace torch_tpu
