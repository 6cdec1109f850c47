#include "tensor/sites.h"

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace torch_tpu {

namespace {

struct Known {
  struct Site {
    uint64_t number;  // in the order of all
    int place;
  };
  std::mutex lock;  // guards all below
  std::unordered_map<const Cell*, Site> sites;
  uint64_t next = 0;
};

Known& known() {
  static auto* k = new Known();  // tensors may outlive static destruction
  return *k;
}

}  // namespace

std::atomic<int (*)()> Sites::here_{nullptr};

void Sites::start(int (*here)()) { here_ = here; }

void Sites::stop() {
  here_ = nullptr;
  Known& k = known();
  const std::lock_guard guard(k.lock);
  k.sites.clear();
}

void Sites::add(const Cell* cell) {
  const auto here = here_.load();
  if (here == nullptr) return;
  const int place = here();
  Known& k = known();
  const std::lock_guard guard(k.lock);
  k.sites[cell] = {k.next++, place};
}

void Sites::remove(const Cell* cell) noexcept {
  Known& k = known();
  const std::lock_guard guard(k.lock);
  k.sites.erase(cell);
}

std::vector<std::pair<const Cell*, int>> Sites::all() {
  Known& k = known();
  const std::lock_guard guard(k.lock);
  std::vector<std::pair<const Cell*, Known::Site>> sorted(k.sites.begin(), k.sites.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.number < b.second.number; });
  std::vector<std::pair<const Cell*, int>> cells;
  for (const auto& [cell, site] : sorted) cells.emplace_back(cell, site.place);
  return cells;
}

}  // namespace torch_tpu
