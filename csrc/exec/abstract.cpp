#include "exec/abstract.h"

#include <c10/util/Exception.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <atomic>
#include <sstream>

#include "exec/module_text.h"

namespace torch_tpu {

namespace {

std::atomic<AbstractSession*> current{nullptr};
int (*place_here)() = nullptr;
const Place& (*place_of)(int) = nullptr;

int here() { return place_here == nullptr ? -1 : place_here(); }

// "train.py:12"; empty if unknown.
std::string line_of(int place) {
  if (place < 0) return {};
  const Place& p = place_of(place);
  return p.frames.empty() ? std::string() : p.frames[0].file + ":" + std::to_string(p.frames[0].line);
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

// What two names have in common: "model.layers.*.mlp" of layers 0 and 1.
std::string common_name(const std::string& a, const std::string& b) {
  if (a == b) return a;
  std::istringstream parts_a(a), parts_b(b);
  std::string part_a, part_b, common;
  while (std::getline(parts_a, part_a, '.')) {
    if (!std::getline(parts_b, part_b, '.')) return a;
    common += (common.empty() ? "" : ".") + (part_a == part_b ? part_a : "*");
  }
  return std::getline(parts_b, part_b, '.') ? a : common;
}

// `"model.layers.0.mlp/aten.mm"(callsite("f"("model.py":5:1) at "main"("train.py":9:1)))`.
// again: the place of the same call in the next iteration of a loop.
std::string location(const std::string& row, int place, int again) {
  std::string name = row;
  if (const size_t colons = name.find("::"); colons != std::string::npos) name.replace(colons, 2, ".");
  if (place < 0) return quoted(name);
  const Place& p = place_of(place);
  if (p.backward) name = "backward/" + name;
  const std::string scope = again < 0 ? p.scope : common_name(p.scope, place_of(again).scope);
  if (!scope.empty()) name = scope + "/" + name;
  std::string stack;
  for (size_t i = p.frames.size(); i-- > 0;) {
    const Place::Frame& f = p.frames[i];
    const std::string frame = quoted(f.function) + "(" + quoted(f.file) + ":" + std::to_string(f.line) + ":1)";
    stack = stack.empty() ? frame : "callsite(" + frame + " at " + stack + ")";
  }
  return quoted(name) + (stack.empty() ? "" : "(" + stack + ")");
}

// The module's text with a location on each call of @main, in their order, and on its arguments.
std::string annotated(const std::string& module, const std::vector<std::string>& calls,
                      const std::vector<AbstractSession::Argument>& arguments) {
  std::unordered_map<std::string, size_t> numbers;
  std::string aliases, text;
  std::istringstream lines(module);
  std::string line;
  size_t call = 0;
  bool in_main = false;
  while (std::getline(lines, line)) {
    if (line.rfind("func.func public @main(", 0) == 0) {
      in_main = true;
      for (size_t i = arguments.size(); i-- > 0;) {
        if (arguments[i].name.empty()) continue;
        size_t end = line.find(", %" + std::to_string(i + 1) + ": ");
        if (end == std::string::npos) end = line.find(") -> (");
        line.insert(end, " loc(" + quoted(arguments[i].name) + ")");
      }
    } else if (in_main && line == "}") {
      in_main = false;
    } else if (in_main && line.find("\"func.call\"(") != std::string::npos) {
      const auto [it, inserted] = numbers.emplace(calls.at(call++), numbers.size());
      if (inserted) aliases += "#loc" + std::to_string(it->second) + " = loc(" + it->first + ")\n";
      line += " loc(#loc" + std::to_string(it->second) + ")";
    }
    text += line;
    text += '\n';
  }
  return text + aliases;
}

}  // namespace

void AbstractSession::begin(Assume assume, int64_t roll_from) {
  TORCH_CHECK(current == nullptr, "tpu: torch_tpu.aot is recording already.\nSessions do not nest.");
  current = new AbstractSession(std::move(assume), roll_from);
}

AbstractSession::Programs AbstractSession::end() {
  AbstractSession* session = current.exchange(nullptr);
  if (session == nullptr) return {};
  session->cut("the end");
  Programs programs = std::move(session->programs_);
  delete session;
  return programs;
}

AbstractSession* AbstractSession::active() { return current.load(std::memory_order_relaxed); }

void AbstractSession::set_places(int (*here)(), const Place& (*place)(int)) {
  place_here = here;
  place_of = place;
}

void AbstractSession::add(Submission& submission, DeviceValues& outputs) {
  const int place = here();
  const std::lock_guard guard(lock_);
  program_.add(submission, outputs);
  for (const DeviceValuePtr& value : outputs) value->abstract = true;
  places_.push_back(place);
}

DeviceValuePtr AbstractSession::input(const Type& type, int device, bool from_host) {
  auto value = c10::make_intrusive<DeviceValue>(type, device);
  value->abstract = true;
  const std::lock_guard guard(lock_);
  if (from_host) host_bytes_ += type.nbytes();
  alive_.emplace_back(value);
  return value;
}

void AbstractSession::cut(const std::string& why) {
  const std::lock_guard guard(lock_);
  cut_locked(why);
}

void AbstractSession::cut_locked(const std::string& why) {
  if (program_.size() == 0) return;
  const Program::Plan plan = program_.plan();
  if (!plan.live.empty()) {
    const uint64_t hash = hash_of(plan.key);
    size_t number = programs_.captured.size();
    const auto [first, last] = index_.equal_range(hash);
    for (auto it = first; it != last; ++it) {
      if (it->second.first == plan.key) number = it->second.second;
    }
    int64_t resident = 0;
    std::vector<c10::weak_intrusive_ptr<DeviceValue>> alive;
    for (const auto& weak : alive_) {
      const DeviceValuePtr value = weak.lock();
      if (!value) continue;
      if (!program_.involves(*value)) resident += value->type.nbytes();
      alive.push_back(weak);
    }
    alive_ = std::move(alive);
    if (number == programs_.captured.size()) {
      index_.emplace(hash, std::pair(plan.key, number));
      Captured& made = programs_.captured.emplace_back();
      made.parts = program_.parts(plan.live, plan.aliases);
      made.ended_by = why;
      for (const auto i : c10::irange(places_.size())) ++made.rows[program_.row(i)][line_of(places_[i])];
      write_locked(plan, made);
    }
    programs_.runs.push_back(number);
    Captured& captured = programs_.captured[number];
    captured.resident_bytes = std::max(captured.resident_bytes, resident);
    captured.host_bytes = std::max(captured.host_bytes, host_bytes_);
    host_bytes_ = 0;
    for (const int64_t slot : plan.live) alive_.emplace_back(program_.result(slot));
  }
  program_.drop();
  places_.clear();
  for (auto it = names_.begin(); it != names_.end();) it = it->second.value.expired() ? names_.erase(it) : ++it;
}

void AbstractSession::write_locked(const Program::Plan& plan, Captured& captured) const {
  Rolled program{program_.listing(), {}, {}};
  if (static_cast<int64_t>(program.listing.calls.size()) >= roll_from_) {
    Rolled rolled = roll(program_.listing(), plan.live, plan.aliases);
    if (!rolled.loops.empty()) program = std::move(rolled);
  }
  const ModuleText text = write_module(program, plan.live, plan.aliases, /*stacked_arguments=*/true);
  for (const Loop& loop : program.loops) {
    captured.loops.push_back({static_cast<int64_t>(loop.period), static_cast<int64_t>(loop.count)});
  }
  // values: of an array; several: of a stack.
  const auto described = [&](const std::vector<DeviceValuePtr>& values, bool donated) {
    Argument a{values[0]->type, name_locked(values[0]), donated};
    if (values.size() > 1) {
      a.stacked = static_cast<int64_t>(values.size());
      a.type.dims.insert(a.type.dims.begin(), a.stacked);
      a.name = common_name(a.name, name_locked(values[1]));
    }
    return a;
  };
  for (const auto i : c10::irange(text.arguments.size())) {
    std::vector<DeviceValuePtr> leaves;
    for (const int64_t leaf : text.arguments[i]) leaves.push_back(program_.leaves()[leaf]);
    captured.arguments.push_back(described(leaves, text.aliases[i] >= 0));
  }
  for (const auto& members : text.results) {
    std::vector<DeviceValuePtr> results;
    for (const size_t member : members) results.push_back(program_.result(plan.live[member]));
    captured.results.push_back(described(results, false));
  }
  std::vector<std::string> calls;
  for (const auto& [first, again] : text.calls) {
    calls.push_back(location(program_.row(first), places_[first], places_[again]));
  }
  captured.module = annotated(text.text, calls, captured.arguments);
}

std::string AbstractSession::name_locked(const DeviceValuePtr& value) const {
  const auto named = names_.find(value.get());
  return named == names_.end() ? std::string() : named->second.text;
}

void AbstractSession::name(const DeviceValuePtr& value, const std::string& name) {
  const std::lock_guard guard(lock_);
  names_.insert_or_assign(value.get(), Name{c10::weak_intrusive_ptr<DeviceValue>(value), name});
}

double AbstractSession::read(const Type& type) {
  const std::string where = line_of(here());
  const Assumed assumed = assume_(type, where);
  const std::lock_guard guard(lock_);
  cut_locked("a value read by the host" + (where.empty() ? "" : " at " + where));
  std::ostringstream what;
  what << type;
  find_locked("host read", what.str(), where);
  TORCH_CHECK(assumed.found, "tpu: the host reads a value (", type, ") that nothing has computed",
              where.empty() ? "" : ", at " + where,
              ".\nOn a TPU this waits for the device. For a check, give the value: values={\"",
              where.substr(where.rfind('/') + 1), "\": 1}.");
  return assumed.value;
}

void AbstractSession::unsupported(const std::string& op, const std::string& what) {
  const std::string where = line_of(here());
  const std::lock_guard guard(lock_);
  find_locked("unsupported", op + "(" + what + ")", where);
}

void AbstractSession::find_locked(const std::string& kind, const std::string& what, const std::string& where) {
  const auto same = [&](const Finding& f) { return f.kind == kind && f.what == what && f.where == where; };
  auto it = std::find_if(findings_.begin(), findings_.end(), same);
  if (it == findings_.end()) it = findings_.insert(findings_.end(), Finding{kind, what, where, 0});
  ++it->count;
}

size_t AbstractSession::runs() {
  const std::lock_guard guard(lock_);
  return programs_.runs.size();
}

std::vector<AbstractSession::Finding> AbstractSession::findings() {
  const std::lock_guard guard(lock_);
  return findings_;
}

}  // namespace torch_tpu
