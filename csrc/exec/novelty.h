// Tells programs that come again from those that never do. Text generation makes a new
// program each step, since a shape grows: compiling each would take far longer than
// running its calls one by one.
// Not thread-safe: guarded by the recorder's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace torch_tpu {

class Novelty {
 public:
  // A program of `calls` calls was found compiled.
  void found(size_t calls);
  // Whether a program that was not found is worth compiling as a whole.
  bool worth_compiling(uint64_t hash, size_t calls);

 private:
  size_t misses_ = 0;                            // of long programs, since one was found
  std::unordered_map<uint64_t, int> sightings_;  // of long programs that were not compiled
};

}  // namespace torch_tpu
