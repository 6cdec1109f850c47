#include "pjrt/in_flight.h"

#include <utility>

#include "pjrt/call.h"

namespace torch_tpu::pjrt {
namespace {

void wait(const Event& done) {
  if (done) PJRT_CALL(PJRT_Event_Await, .event = done.get());
}

}  // namespace

void InFlight::make_room() {
  Event oldest;
  {
    const std::lock_guard lock(mutex_);
    oldest = std::move(ring_[next_ % ring_.size()]);
  }
  wait(oldest);
}

void InFlight::push(Event done) {
  const std::lock_guard lock(mutex_);
  ring_[next_++ % ring_.size()] = std::move(done);
}

void InFlight::wait_for_all() {
  std::array<Event, 64> all;
  {
    const std::lock_guard lock(mutex_);
    std::swap(all, ring_);
  }
  for (const Event& done : all) wait(done);
}

}  // namespace torch_tpu::pjrt
