// Finds what comes several times in a row in a sequence: the layers of a model, in the calls of a program.
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <vector>

namespace torch_tpu {

struct Repeat {
  size_t first = 0;   // position
  size_t period = 0;  // items that come again
  size_t count = 0;   // times
  size_t slack = 0;   // items after the last time that go on as if there were one more: `first` may be as much later
};

// Repeats of at least `least_period` items and `least_count` times that do not overlap, in order: the one that leaves
// the least behind first, then those of what is before and after it.
std::vector<Repeat> find_repeats(c10::ArrayRef<int64_t> items, size_t least_period, size_t least_count);

}  // namespace torch_tpu
