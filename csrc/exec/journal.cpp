#include "exec/journal.h"

#include <algorithm>
#include <array>
#include <deque>
#include <mutex>

#include "exec/policy.h"

namespace torch_tpu {

namespace {

constexpr size_t kKinds = static_cast<size_t>(Event::Kind::kCount);
// An executable's key may take 100 KB where there are thousands of calls.
constexpr std::array<size_t, kKinds> kKept = {512, 128, 512, 512};

struct Pages {
  std::mutex lock;  // guards all below
  std::array<std::deque<Event>, kKinds> events;
  uint64_t next = 1;
  int64_t step = 0;
};

Pages& pages() {
  static auto* p = new Pages();
  return *p;
}

thread_local std::vector<std::pair<Event::Kind, uint64_t>> unlocated;
thread_local bool without_place = false;

bool alike(const Event& a, const Event& b) {
  return a.what == b.what && a.where == b.where && a.note == b.note && a.calls == b.calls && a.step == b.step &&
         a.parts == b.parts;
}

}  // namespace

void Journal::add(Event event) {
  Pages& p = pages();
  const std::lock_guard guard(p.lock);
  event.number = p.next++;
  event.step = p.step;
  if (!without_place) unlocated.emplace_back(event.kind, event.number);
  auto& events = p.events[static_cast<size_t>(event.kind)];
  if (events.size() >= kKept[static_cast<size_t>(event.kind)]) events.pop_front();
  events.push_back(std::move(event));
}

void Journal::locate() {
  if (unlocated.empty()) return;
  const std::string where = python_location();
  Pages& p = pages();
  const std::lock_guard guard(p.lock);
  for (const auto& [kind, number] : unlocated) {
    auto& events = p.events[static_cast<size_t>(kind)];
    const auto it = std::find_if(events.rbegin(), events.rend(), [&](const Event& e) { return e.number == number; });
    if (it == events.rend()) continue;
    it->where = where;
    const auto before = std::next(it);
    if (before == events.rend() || it != events.rbegin() || !alike(*it, *before)) continue;
    before->count += it->count;
    before->seconds += it->seconds;
    events.pop_back();
  }
  unlocated.clear();
}

EventsWithoutPlace::EventsWithoutPlace() { without_place = true; }

EventsWithoutPlace::~EventsWithoutPlace() { without_place = false; }

void Journal::end_step() {
  Pages& p = pages();
  const std::lock_guard guard(p.lock);
  ++p.step;
}

int64_t Journal::steps() {
  Pages& p = pages();
  const std::lock_guard guard(p.lock);
  return p.step;
}

std::vector<Event> Journal::events() {
  Pages& p = pages();
  std::vector<Event> all;
  {
    const std::lock_guard guard(p.lock);
    for (const auto& events : p.events) all.insert(all.end(), events.begin(), events.end());
  }
  std::sort(all.begin(), all.end(), [](const Event& a, const Event& b) { return a.number < b.number; });
  return all;
}

}  // namespace torch_tpu
