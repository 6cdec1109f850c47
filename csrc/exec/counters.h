// Counts since the process started, for tests, benchmarks and torch_tpu.counters().
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <string>

namespace torch_tpu {

enum class Counter {
  kCalls,       // calls submitted to a policy
  kSignatures,  // distinct calls lowered
  kCompiles,    // programs compiled
  kCacheHits,   // programs found in memory
  kDiskHits,    // programs loaded from disk
  kFlushes,     // recorded programs run
  kFallbacks,   // calls run on the CPU for want of a row
  kHostReads,   // values read by the host
  kTransfers,   // buffers copied from the host, packs of numbers included
  kDonations,   // buffers given to an output
  kCount,
};

class Counters {
 public:
  static void add(Counter c, int64_t n = 1) { counts_[static_cast<size_t>(c)].fetch_add(n, std::memory_order_relaxed); }
  static std::map<std::string, int64_t> all();

 private:
  static std::array<std::atomic<int64_t>, static_cast<size_t>(Counter::kCount)> counts_;
};

}  // namespace torch_tpu
