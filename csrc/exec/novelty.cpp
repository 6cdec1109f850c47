#include "exec/novelty.h"

namespace torch_tpu {

namespace {

// A shorter program compiles about as fast as its calls do.
constexpr size_t kLong = 48;
// A training loop has a few programs before it repeats itself: the first steps, an evaluation.
constexpr size_t kPatience = 3;
constexpr int kSightings = 3;
constexpr size_t kRemembered = 4096;

}  // namespace

void Novelty::found(size_t calls) {
  if (calls >= kLong) misses_ = 0;
}

bool Novelty::worth_compiling(uint64_t hash, size_t calls) {
  if (calls < kLong || ++misses_ <= kPatience) return true;
  if (sightings_.size() >= kRemembered) sightings_.clear();
  return ++sightings_[hash] >= kSightings;
}

}  // namespace torch_tpu
