// The second level of the compile cache: program -> loaded executable, in memory,
// bounded, least recently used first out. The key is a program's trace of call
// signatures, operands, live results and donations.
// Not thread-safe: guarded by the recorder's lock.
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "pjrt/pjrt.h"

namespace torch_tpu {

// The numbers of a program's calls as one device array, kept while they do not change.
template <typename T>
struct Pack {
  std::vector<T> host;
  pjrt::Buffer buffer;
  int device = -1;
};

struct LoadedProgram {
  pjrt::LoadedExecutable executable;
  Pack<double> doubles;
  Pack<int64_t> integers;
  std::vector<int64_t> aliases;  // by argument: the output that gets its buffer, or -1
  bool small = false;            // one call on little data
  int64_t scratch_bytes = 0;     // that it takes while it runs, beside arguments and results
};

uint64_t hash_of(c10::ArrayRef<int64_t> key);

class ProgramCache {
 public:
  explicit ProgramCache(size_t capacity) : capacity_(capacity) {}

  // Null if absent. What comes back lives until the next insert().
  LoadedProgram* find(c10::ArrayRef<int64_t> key, uint64_t hash);
  LoadedProgram* insert(c10::ArrayRef<int64_t> key, uint64_t hash, pjrt::LoadedExecutable executable);
  size_t size() const { return entries_.size(); }
  void clear();

 private:
  struct Entry {
    std::vector<int64_t> key;
    uint64_t hash;
    LoadedProgram program;
  };
  std::list<Entry> entries_;  // most recently used first
  std::unordered_multimap<uint64_t, std::list<Entry>::iterator> by_hash_;
  size_t capacity_;
};

}  // namespace torch_tpu
