#include "exec/counters.h"

namespace torch_tpu {

std::array<std::atomic<int64_t>, static_cast<size_t>(Counter::kCount)> Counters::counts_{};

std::map<std::string, int64_t> Counters::all() {
  static constexpr std::array kNames = {"calls",   "signatures", "compiles",   "cache_hits", "disk_hits",
                                        "flushes", "fallbacks",  "host_reads", "transfers",  "donations"};
  static_assert(kNames.size() == static_cast<size_t>(Counter::kCount));
  std::map<std::string, int64_t> counts;
  for (size_t i = 0; i < kNames.size(); ++i) counts[kNames[i]] = counts_[i].load(std::memory_order_relaxed);
  return counts;
}

}  // namespace torch_tpu
