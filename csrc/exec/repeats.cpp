#include "exec/repeats.h"

#include <algorithm>
#include <set>
#include <unordered_map>

namespace torch_tpu {

namespace {

// An item that comes once in a layer comes again after one period; one that comes up to this often, after so many more.
constexpr size_t kOccurrences = 4;

using Items = c10::ArrayRef<int64_t>;

std::set<size_t> distances(Items items, size_t least) {
  std::unordered_map<int64_t, std::vector<size_t>> places;
  std::set<size_t> found;
  for (size_t i = 0; i < items.size(); ++i) {
    std::vector<size_t>& before = places[items[i]];
    for (size_t k = 1; k <= std::min(kOccurrences, before.size()); ++k) {
      const size_t distance = i - before[before.size() - k];
      if (distance >= least) found.insert(distance);
    }
    before.push_back(i);
  }
  return found;
}

size_t saved(const Repeat& r) { return r.count == 0 ? 0 : (r.count - 1) * r.period; }

Repeat best_repeat(Items items, size_t least_period, size_t least_count) {
  Repeat best;
  for (const size_t period : distances(items, least_period)) {
    size_t same = 0;  // items up to here that equal the one a period later
    for (size_t i = 0; i + period <= items.size(); ++i) {
      if (i + period < items.size() && items[i] == items[i + period]) {
        ++same;
        continue;
      }
      const size_t length = same + period;
      const Repeat found{i - same, period, length / period, length % period};
      if (found.count >= least_count && saved(found) > saved(best)) best = found;
      same = 0;
    }
  }
  return best;
}

void find(Items items, size_t offset, size_t least_period, size_t least_count, std::vector<Repeat>& found) {
  Repeat best = best_repeat(items, least_period, least_count);
  if (best.count == 0) return;
  const size_t end = best.first + best.count * best.period + best.slack;
  find(items.slice(0, best.first), offset, least_period, least_count, found);
  found.push_back(best);
  found.back().first += offset;
  find(items.slice(end), offset + end, least_period, least_count, found);
}

}  // namespace

std::vector<Repeat> find_repeats(Items items, size_t least_period, size_t least_count) {
  std::vector<Repeat> found;
  find(items, 0, least_period, least_count, found);
  return found;
}

}  // namespace torch_tpu
