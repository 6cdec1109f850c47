#include "exec/roll.h"

#include <c10/util/irange.h>

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "exec/repeats.h"

namespace torch_tpu {

namespace {

// Fewer calls, or times, are not worth a loop: it keeps the compiler from seeing across its ends.
constexpr size_t kLeastCalls = 4;
constexpr size_t kLeastTimes = 3;
// How many other beginnings of a layer are tried where the first one tears values apart.
constexpr size_t kBeginnings = 64;

using Names = std::vector<int64_t>;  // of values

// Calls that mean the same get the same number.
std::vector<int64_t> meanings(const Listing& listing) {
  std::unordered_map<std::string_view, int64_t> of_text;
  std::unordered_map<const Signature*, int64_t> of_signature;
  std::vector<int64_t> all;
  for (const Listing::Call& call : listing.calls) {
    const auto [it, inserted] = of_signature.try_emplace(call.signature, 0);
    if (inserted) {
      it->second = of_text.try_emplace(call.signature->text, static_cast<int64_t>(of_text.size())).first->second;
    }
    all.push_back(it->second);
  }
  return all;
}

// start and step of positions that go up or down one by one.
std::optional<std::pair<int64_t, int64_t>> walk(const std::vector<int64_t>& positions) {
  const int64_t step = positions.size() > 1 ? positions[1] - positions[0] : 1;
  if (step != 1 && step != -1) return {};
  for (size_t i = 1; i < positions.size(); ++i) {
    if (positions[i] - positions[i - 1] != step) return {};
  }
  return std::pair(positions[0], step);
}

class Planner {
 public:
  Planner(Listing listing, const Names& live, const Names& aliases)
      : live_(live), aliases_(aliases), maker_(listing.values.size()) {
    result_.listing = std::move(listing);
    for (const auto i : c10::irange(calls().size())) {
      for (const int64_t result : calls()[i].results) maker_[result] = i;
    }
  }

  Rolled run() {
    for (const Repeat& repeat : find_repeats(meanings(result_.listing), kLeastCalls, kLeastTimes)) add(repeat);
    if (result_.loops.empty()) return std::move(result_);
    stack_whole_results();
    need_singles();
    reuse_buffers();
    for (Loop& loop : result_.loops) loop.whole = as_whole(loop);
    return std::move(result_);
  }

 private:
  const std::vector<Listing::Call>& calls() const { return result_.listing.calls; }

  // --- one repeat as a loop

  // A loop whose stacked operands are still lists of values, by iteration.
  struct Draft {
    Loop loop;
    std::vector<Names> sequences;  // by read
  };

  std::optional<Draft> draft(size_t first, size_t period, size_t count) const {
    Draft d;
    d.loop.first = first;
    d.loop.period = period;
    d.loop.count = count;
    std::map<Names, int64_t> known;
    for (const auto j : c10::irange(period)) {
      auto& operands = d.loop.operands.emplace_back();
      for (const auto p : c10::irange(calls()[first + j].inputs.size())) {
        Names sequence;
        for (const auto i : c10::irange(count)) sequence.push_back(calls()[first + i * period + j].inputs[p]);
        const auto operand = operand_of(d, sequence, known);
        if (!operand) return {};
        operands.push_back(*operand);
      }
    }
    return d;
  }

  bool inside(const Loop& loop, int64_t value) const {
    return value >= 0 && maker_[value] >= loop.first && maker_[value] < loop.first + loop.period * loop.count;
  }

  // What iteration `i` makes where the first one makes `value`.
  int64_t in_iteration(const Loop& loop, int64_t value, size_t i) const {
    const Listing::Call& call = calls()[maker_[value]];
    const auto at = std::find(call.results.begin(), call.results.end(), value) - call.results.begin();
    return calls()[maker_[value] + i * loop.period].results[at];
  }

  std::optional<Loop::Operand> operand_of(Draft& d, const Names& sequence, std::map<Names, int64_t>& known) const {
    using Kind = Loop::Operand::Kind;
    Loop& loop = d.loop;
    const auto follows = [&](int64_t value, size_t from) {
      for (size_t i = from; i < sequence.size(); ++i) {
        if (sequence[i] != in_iteration(loop, value, i - from)) return false;
      }
      return true;
    };
    const auto in_first = [&](int64_t value) {
      return inside(loop, value) && maker_[value] < loop.first + loop.period;
    };
    if (in_first(sequence[0])) {
      if (!follows(sequence[0], 0)) return {};
      return Loop::Operand{Kind::kInside, sequence[0]};
    }
    if (inside(loop, sequence[0])) return {};
    if (in_first(sequence[1]) && follows(sequence[1], 1)) {
      const auto same = [&](const Loop::Carried& c) { return c.initial == sequence[0] && c.next == sequence[1]; };
      const auto it = std::find_if(loop.carried.begin(), loop.carried.end(), same);
      const int64_t which = it - loop.carried.begin();
      if (it == loop.carried.end()) loop.carried.push_back({sequence[0], sequence[1]});
      return Loop::Operand{Kind::kCarried, which};
    }
    for (const int64_t value : sequence) {
      if (inside(loop, value)) return {};
    }
    if (std::count(sequence.begin(), sequence.end(), sequence[0]) == static_cast<std::ptrdiff_t>(sequence.size())) {
      return Loop::Operand{Kind::kOutside, sequence[0]};
    }
    const auto [it, inserted] = known.try_emplace(sequence, static_cast<int64_t>(d.sequences.size()));
    if (inserted) d.sequences.push_back(sequence);
    return Loop::Operand{Kind::kStacked, it->second};
  }

  // Tears no values apart if it can be helped; leaves out a first or last time that is not like the others.
  void add(const Repeat& repeat) {
    for (const size_t fewer : {0, 1, 2}) {
      if (repeat.count < kLeastTimes + fewer) return;
      std::optional<Draft> best;
      size_t least = SIZE_MAX;
      for (const auto before : c10::irange(fewer + 1)) {
        const size_t last_shift = std::min(repeat.slack, kBeginnings);
        for (const auto shift : c10::irange(last_shift + 1)) {
          auto d = draft(repeat.first + before * repeat.period + shift, repeat.period, repeat.count - fewer);
          if (!d) continue;
          const auto torn =
              static_cast<size_t>(std::count_if(d->sequences.begin(), d->sequences.end(),
                                                [&](const Names& s) { return source_of(s).kind == Source::kTorn; }));
          if (torn >= least) continue;
          least = torn;
          best = std::move(d);
          if (torn == 0) return settle(std::move(*best));
        }
      }
      if (best) return settle(std::move(*best));
    }
  }

  // --- where the stacks come from

  // Where a result of a loop comes from.
  struct Origin {
    int loop;
    int64_t iteration, value;  // the value that the first iteration makes there
  };

  const Origin* origin(int64_t value) const {
    const auto it = origins_.find(value);
    return it == origins_.end() ? nullptr : &it->second;
  }

  struct Source {
    enum Kind { kStack, kResults, kEntries, kLeaves, kTorn } kind;
    int which = -1;               // a stack; a loop
    int64_t value = 0;            // kResults: in the loop's first iteration. kEntries: which of its carried values
    int64_t start = 0, step = 1;  // kStack: of members. Others: of iterations
  };

  Source source_of(const Names& sequence) const {
    const auto there = memberships_.find(sequence[0]);
    if (there != memberships_.end()) {
      for (const int stack : there->second) {
        if (const auto walked = walk(positions(result_.stacks[stack].members, sequence))) {
          return {Source::kStack, stack, 0, walked->first, walked->second};
        }
      }
    }
    if (const auto made = from_loop(sequence)) return *made;
    std::unordered_set<int64_t> distinct;
    for (const int64_t value : sequence) {
      if (value >= 0 || memberships_.count(value) != 0 || !distinct.insert(value).second) return {Source::kTorn};
    }
    return {Source::kLeaves};
  }

  static std::vector<int64_t> positions(const Names& members, const Names& sequence) {
    std::vector<int64_t> found;
    for (const int64_t value : sequence) {
      const auto it = std::find(members.begin(), members.end(), value);
      if (it == members.end()) return {0, 0};  // no walk
      found.push_back(it - members.begin());
    }
    return found;
  }

  std::optional<Source> from_loop(const Names& sequence) const {
    const Origin* any = origin(sequence[0]) != nullptr ? origin(sequence[0]) : origin(sequence[1]);
    if (any == nullptr) return {};
    const Loop& loop = result_.loops[any->loop];
    // As each iteration makes it, or as the next one finds it: then the first one finds what the loop began with.
    std::vector<int64_t> made;
    for (const int64_t value : sequence) {
      const Origin* o = origin(value);
      if (o == nullptr || o->loop != any->loop || o->value != any->value) break;
      made.push_back(o->iteration);
    }
    if (made.size() == sequence.size()) {
      if (const auto walked = walk(made)) {
        return Source{Source::kResults, any->loop, any->value, walked->first, walked->second};
      }
      return {};
    }
    for (const auto c : c10::irange(loop.carried.size())) {
      if (loop.carried[c].next != any->value) continue;
      std::vector<int64_t> entered;
      for (const int64_t value : sequence) {
        const Origin* o = origin(value);
        if (value == loop.carried[c].initial) {
          entered.push_back(0);
        } else if (o != nullptr && o->loop == any->loop && o->value == any->value &&
                   o->iteration + 1 < static_cast<int64_t>(loop.count)) {
          entered.push_back(o->iteration + 1);
        }
      }
      if (entered.size() != sequence.size()) continue;
      if (const auto walked = walk(entered)) {
        return Source{Source::kEntries, any->loop, static_cast<int64_t>(c), walked->first, walked->second};
      }
    }
    return {};
  }

  int add_stack(Stack::Kind kind, Names members) {
    const int number = static_cast<int>(result_.stacks.size());
    for (const int64_t value : members) memberships_[value].push_back(number);
    result_.stacks.push_back({kind, std::move(members)});
    return number;
  }

  // The stack of what a loop makes or finds; its order is the loop's own, or against it.
  int stack_of_loop(int number, bool entries, int64_t which) {
    Loop& loop = result_.loops[number];
    for (const Loop::Write& w : loop.writes) {
      if (entries ? w.carried == which : w.carried < 0 && w.value == which) return w.stack;
    }
    Names members;
    for (const auto i : c10::irange(loop.count)) {
      if (!entries) {
        members.push_back(in_iteration(loop, which, i));
      } else {
        const Loop::Carried& c = loop.carried[which];
        members.push_back(i == 0 ? c.initial : in_iteration(loop, c.next, i - 1));
      }
    }
    if (loop.reversed) std::reverse(members.begin(), members.end());
    const int stack = add_stack(entries ? Stack::Kind::kEntries : Stack::Kind::kResults, std::move(members));
    loop.writes.push_back({stack, entries ? -1 : which, entries ? static_cast<int>(which) : -1});
    return stack;
  }

  void settle(Draft d) {
    const auto number = static_cast<int>(result_.loops.size());
    std::vector<Source> sources;
    std::vector<int> stacks;
    int64_t direction = 0;
    for (const Names& sequence : d.sequences) {
      Source s = source_of(sequence);
      int stack = s.which;
      if (s.kind == Source::kResults || s.kind == Source::kEntries) {
        stack = stack_of_loop(s.which, s.kind == Source::kEntries, s.value);
        const Loop& maker = result_.loops[s.which];
        if (maker.reversed) {
          s.start = static_cast<int64_t>(maker.count) - 1 - s.start;
          s.step = -s.step;
        }
      }
      if (s.kind != Source::kLeaves && s.kind != Source::kTorn) direction += s.step;
      sources.push_back(s);
      stacks.push_back(stack);
    }
    d.loop.reversed = direction < 0;
    const auto last = static_cast<int64_t>(d.loop.count) - 1;
    for (const auto i : c10::irange(sources.size())) {
      Source s = sources[i];
      if (s.kind == Source::kLeaves || s.kind == Source::kTorn) {
        s = source_of(d.sequences[i]);  // another sequence of this loop may have stacked it meanwhile
        if (s.kind == Source::kStack) {
          stacks[i] = s.which;
        } else {
          Names members = d.sequences[i];
          if (d.loop.reversed) std::reverse(members.begin(), members.end());
          const bool leaves = s.kind == Source::kLeaves;
          s.start = d.loop.reversed ? last : 0;
          s.step = d.loop.reversed ? -1 : 1;
          if (leaves) {
            stacks[i] = add_stack(Stack::Kind::kLeaves, std::move(members));
          } else {
            stacks[i] = static_cast<int>(result_.stacks.size());
            result_.stacks.push_back({Stack::Kind::kValues, std::move(members)});  // may hold a value twice
          }
        }
      }
      d.loop.reads.push_back({stacks[i], s.start, s.step});
    }
    for (const auto j : c10::irange(d.loop.period)) {
      for (const auto i : c10::irange(d.loop.count)) {
        const Listing::Call& call = calls()[d.loop.first + i * d.loop.period + j];
        const Listing::Call& in_first = calls()[d.loop.first + j];
        for (const auto o : c10::irange(call.results.size())) {
          origins_[call.results[o]] = {number, static_cast<int64_t>(i), in_first.results[o]};
        }
      }
    }
    result_.loops.push_back(std::move(d.loop));
  }

  // --- what is needed outside of the loops

  // Results that are live in every iteration are returned as a stack.
  void stack_whole_results() {
    std::map<std::pair<int, int64_t>, size_t> counts;
    for (const int64_t value : live_) {
      if (const Origin* o = origin(value)) ++counts[{o->loop, o->value}];
    }
    for (const auto& [made, count] : counts) {
      if (count == result_.loops[made.first].count) stack_of_loop(made.first, /*entries=*/false, made.second);
    }
  }

  void need_singles() {
    std::vector<bool> rolled(calls().size());
    for (const Loop& loop : result_.loops) {
      std::fill_n(rolled.begin() + static_cast<std::ptrdiff_t>(loop.first), loop.period * loop.count, true);
    }
    for (const auto i : c10::irange(calls().size())) {
      for (const int64_t value : calls()[i].inputs) {
        if (!rolled[i]) need(value);
      }
    }
    for (const auto n : c10::irange(result_.loops.size())) {
      for (const auto& call : result_.loops[n].operands) {
        for (const Loop::Operand& operand : call) {
          if (operand.kind == Loop::Operand::Kind::kOutside) need(operand.which);
        }
      }
      const std::vector<Loop::Carried> carried = result_.loops[n].carried;
      for (const Loop::Carried& c : carried) need(c.initial);
    }
    for (const auto n : c10::irange(result_.stacks.size())) {
      if (result_.stacks[n].kind != Stack::Kind::kValues) continue;
      const Names members = result_.stacks[n].members;
      for (const int64_t value : members) need(value);
    }
    for (const int64_t value : live_) need(value);
  }

  void need(int64_t value) {
    needed_.insert(value);
    const Origin* o = origin(value);
    if (o == nullptr) return;
    Loop& loop = result_.loops[o->loop];
    const auto holds = [&](const Loop::Write& w) {
      const Names& members = result_.stacks[w.stack].members;
      return std::find(members.begin(), members.end(), value) != members.end();
    };
    if (std::any_of(loop.writes.begin(), loop.writes.end(), holds)) return;
    if (o->iteration + 1 < static_cast<int64_t>(loop.count)) {
      stack_of_loop(o->loop, /*entries=*/false, o->value);
      return;
    }
    const auto carries = [&](const Loop::Carried& c) { return c.next == o->value; };
    if (std::any_of(loop.carried.begin(), loop.carried.end(), carries)) return;
    if (std::find(loop.kept.begin(), loop.kept.end(), o->value) == loop.kept.end()) loop.kept.push_back(o->value);
  }

  // A stack of inputs whose buffers go to the members of another is overwritten by the loop that makes that one,
  // if that loop reads each member just before, and nothing reads it later.
  void reuse_buffers() {
    std::unordered_map<int64_t, int64_t> taker;  // live result -> the input whose buffer it gets
    for (const auto leaf : c10::irange(aliases_.size())) {
      if (aliases_[leaf] >= 0) taker[live_[aliases_[leaf]]] = ~static_cast<int64_t>(leaf);
    }
    std::vector<std::pair<const Loop*, int>> readers(result_.stacks.size());  // the last loop that reads it, how often
    for (const Loop& loop : result_.loops) {
      for (const Loop::Read& read : loop.reads) {
        auto& [last, count] = readers[read.stack];
        count = last == &loop ? count + 1 : 1;
        last = &loop;
      }
    }
    for (Loop& loop : result_.loops) {
      const auto last = static_cast<int64_t>(loop.count) - 1;
      for (Loop::Write& write : loop.writes) {
        if (write.carried >= 0) continue;
        const Stack& made = result_.stacks[write.stack];
        for (const Loop::Read& read : loop.reads) {
          const Stack& old = result_.stacks[read.stack];
          if (old.kind != Stack::Kind::kLeaves || readers[read.stack] != std::pair<const Loop*, int>(&loop, 1))
            continue;
          if (read.start != (loop.reversed ? last : 0) || read.step != (loop.reversed ? -1 : 1)) continue;
          if (old.members.size() != made.members.size()) continue;
          bool fits = true;
          for (const auto k : c10::irange(old.members.size())) {
            const auto it = taker.find(made.members[k]);
            fits = fits && it != taker.end() && it->second == old.members[k] && needed_.count(old.members[k]) == 0;
          }
          if (fits) write.replaces = read.stack;
        }
      }
    }
  }

  // --- loops that need not be loops

  std::vector<StackedFunction> as_whole(const Loop& loop) const {
    const auto last = static_cast<int64_t>(loop.count) - 1;
    const auto in_order = [&](const Loop::Read& read) {
      return read.step == (loop.reversed ? -1 : 1) && read.start - (loop.reversed ? last : 0) >= 0;
    };
    if (!loop.carried.empty() || !std::all_of(loop.reads.begin(), loop.reads.end(), in_order)) return {};
    std::vector<StackedFunction> whole;
    for (const auto j : c10::irange(loop.period)) {
      const Listing::Call& call = calls()[loop.first + j];
      for (const auto n : c10::irange(call.numbers.size())) {
        std::vector<int64_t> places;
        for (const auto i : c10::irange(loop.count)) {
          places.push_back(calls()[loop.first + i * loop.period + j].numbers[n]);
        }
        const Type& type = call.signature->input_types[call.inputs.size() + n];
        if (!result_.listing.is_same_number(type, places)) return {};
      }
      std::vector<bool> is_stack;
      for (const Loop::Operand& operand : loop.operands[j]) {
        is_stack.push_back(operand.kind != Loop::Operand::Kind::kOutside);
      }
      auto function = over_stacks(*call.signature, is_stack, loop.count);
      if (!function) return {};
      whole.push_back(std::move(*function));
    }
    return whole;
  }

  const Names& live_;
  const Names& aliases_;
  std::vector<size_t> maker_;  // by value: the call
  Rolled result_;
  std::unordered_map<int64_t, Origin> origins_;
  std::unordered_map<int64_t, std::vector<int>> memberships_;  // value -> stacks
  std::unordered_set<int64_t> needed_;                         // values that are used one by one
};

}  // namespace

Rolled roll(Listing listing, const std::vector<int64_t>& live, const std::vector<int64_t>& aliases) {
  split_lists(listing);
  return Planner(std::move(listing), live, aliases).run();
}

}  // namespace torch_tpu
