// Programs of one device that were queued and may not be done. Thread-safe.
#pragma once

#include <array>
#include <mutex>

#include "pjrt/pjrt.h"

namespace torch_tpu::pjrt {

class InFlight {
 public:
  // Waits for the oldest when there are many, so that the host does not run ahead without bound; throws what that
  // threw.
  void make_room();

  // The completion of a program.
  void push(Event done);

  // Throws what a program threw.
  void wait_for_all();

 private:
  std::mutex mutex_;
  std::array<Event, 64> ring_;  // null: nothing to wait for
  size_t next_ = 0;
};

}  // namespace torch_tpu::pjrt
