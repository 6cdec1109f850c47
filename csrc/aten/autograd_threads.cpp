#include "aten/autograd_threads.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <c10/util/irange.h>

#include <exception>
#include <thread>

#include "device/guard.h"
#include "exec/abstract.h"
#include "pjrt/pjrt.h"
#include "tensor/fork.h"

namespace torch_tpu {
namespace {

// A pass that computes nothing, and comes after what its device's thread has to do.
void pass(int device) {
  const auto options =
      at::TensorOptions(c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device)));
  const at::Tensor x = at::empty({0}, options).set_requires_grad(true);
  x.view({0}).backward(at::empty({0}, options));
}

}  // namespace

void settle_autograd_threads() noexcept {
  if (in_forked_child() || !other_threads_choose_devices()) return;
  if (!pjrt::Client::is_created() && AbstractSession::active() == nullptr) return;
  // A thread of its own, which has no Python objects that a pass would take along.
  std::thread([] {
    try {
      for (const auto device : c10::irange(device_count())) pass(device);
    } catch (const std::exception& error) {
      TORCH_WARN("tpu: autograd's threads could not be waited for: ", error.what());
    }
  }).join();
}

}  // namespace torch_tpu
