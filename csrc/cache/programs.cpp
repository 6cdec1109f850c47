#include "cache/programs.h"

#include <algorithm>

namespace torch_tpu {

uint64_t hash_of(c10::ArrayRef<int64_t> key) {
  uint64_t h = 0x9e3779b97f4a7c15ULL ^ key.size();
  for (const int64_t k : key) {
    h = (h ^ static_cast<uint64_t>(k)) * 0xff51afd7ed558ccdULL;
    h ^= h >> 32;
  }
  return h;
}

LoadedProgram* ProgramCache::find(c10::ArrayRef<int64_t> key, uint64_t hash) {
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    if (c10::ArrayRef<int64_t>(it->second->key) != key) continue;
    if (it->second != entries_.begin()) entries_.splice(entries_.begin(), entries_, it->second);
    return &it->second->program;
  }
  return nullptr;
}

LoadedProgram* ProgramCache::insert(c10::ArrayRef<int64_t> key, uint64_t hash, pjrt::LoadedExecutable executable) {
  while (entries_.size() >= capacity_) {
    const auto oldest = std::prev(entries_.end());
    const auto [first, last] = by_hash_.equal_range(oldest->hash);
    by_hash_.erase(std::find_if(first, last, [&](const auto& e) { return e.second == oldest; }));
    entries_.pop_back();
  }
  const int64_t scratch = pjrt::scratch_bytes(executable.get());
  entries_.push_front(
      {key.vec(),
       hash,
       {.executable = std::move(executable), .doubles = {}, .integers = {}, .aliases = {}, .scratch_bytes = scratch}});
  by_hash_.emplace(hash, entries_.begin());
  return &entries_.front().program;
}

void ProgramCache::clear() {
  by_hash_.clear();
  entries_.clear();
}

}  // namespace torch_tpu
