#include "exec/module_text.h"

#include <c10/util/Exception.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "lowerings/foreign.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

constexpr at::ScalarType kIndex = at::kInt;          // counts iterations
constexpr const char* kOverStacks = "_over_stacks";  // in the names of functions whose arrays are stacks

// Adds a signature's function under a name, and the foreign ones that it calls unless they are there.
void add_function(std::string& functions, const std::string& name, const std::string& text) {
  const size_t foreign = std::min(text.find(kForeignFunction), text.size());
  functions += "func.func private @" + name + text.substr(0, foreign);
  const std::string called = text.substr(foreign);
  if (functions.find(called) == std::string::npos) functions += called;
}

class Writer {
 public:
  Writer(const Rolled& program, const std::vector<int64_t>& live, const std::vector<int64_t>& aliases,
         bool stacked_arguments)
      : program_(program),
        listing_(program.listing),
        live_(live),
        aliases_(aliases),
        stacked_arguments_(stacked_arguments) {
    stacks_.resize(program.stacks.size());
  }

  ModuleText run() {
    declare_arguments();
    auto loop = program_.loops.begin();
    for (size_t i = 0; i < listing_.calls.size();) {
      if (loop != program_.loops.end() && loop->first == i) {
        loop->whole.empty() ? write_loop(*loop) : write_whole(*loop);
        i += loop->period * loop->count;
        ++loop;
      } else {
        write_call(listing_.calls[i++]);
      }
    }
    const Values returned = collect_results();
    choose_aliases();
    std::vector<std::string> attributes;
    for (const int64_t alias : text_.aliases) {
      attributes.push_back(alias < 0 ? "" : "tf.aliasing_output = " + std::to_string(alias) + " : i32");
    }
    text_.text = "module @program {\n" + e_.finish("main", returned, true, attributes) + functions_ + "}\n";
    return std::move(text_);
  }

 private:
  const Stack& stack(int number) const { return program_.stacks[number]; }

  // --- arguments and results

  void declare_arguments() {
    std::unordered_map<int64_t, int> stack_of;  // leaf -> stack
    for (const auto s : c10::irange(program_.stacks.size())) {
      if (!stacked_arguments_ || stack(static_cast<int>(s)).kind != Stack::Kind::kLeaves) continue;
      for (const int64_t leaf : stack(static_cast<int>(s)).members) stack_of[leaf] = static_cast<int>(s);
    }
    for (const auto i : c10::irange(listing_.leaves.size())) {
      const int64_t leaf = ~static_cast<int64_t>(i);
      const auto it = stack_of.find(leaf);
      if (it == stack_of.end()) {
        values_[leaf] = e_.input(listing_.leaves[i]);
        text_.arguments.push_back({static_cast<int64_t>(i)});
      } else if (!stacks_[it->second].defined()) {
        const std::vector<int64_t>& members = stack(it->second).members;
        stacks_[it->second] = e_.input(stacked(listing_.leaves[i], members.size()));
        auto& leaves = text_.arguments.emplace_back();
        for (const int64_t member : members) leaves.push_back(~member);
      }
    }
    const auto pack = [&](size_t n, at::ScalarType dtype) {
      return n == 0 ? Value{} : e_.input(Type(dtype, {static_cast<int64_t>(n)}));
    };
    doubles_ = pack(listing_.doubles.size(), at::kDouble);
    integers_ = pack(listing_.integers.size(), at::kLong);
  }

  Values collect_results() {
    std::unordered_map<int64_t, size_t> position;
    for (const auto i : c10::irange(live_.size())) position.emplace(live_[i], i);
    std::vector<bool> done(live_.size());
    std::unordered_map<int64_t, int> whole;  // value -> the stack that is returned with it in it
    for (const auto s : c10::irange(stacked_arguments_ ? program_.stacks.size() : 0)) {
      const auto& [kind, members] = stack(static_cast<int>(s));
      const auto is_live = [&](int64_t value) { return position.count(value) != 0; };
      if (kind != Stack::Kind::kResults || !std::all_of(members.begin(), members.end(), is_live)) continue;
      for (const int64_t member : members) whole.emplace(member, static_cast<int>(s));
    }
    Values returned;
    for (const auto i : c10::irange(live_.size())) {
      if (done[i]) continue;
      auto& results = text_.results.emplace_back();
      const auto it = whole.find(live_[i]);
      if (it == whole.end()) {
        results.push_back(i);
        returned.push_back(value(live_[i]));
        continue;
      }
      for (const int64_t member : stack(it->second).members) {
        results.push_back(position.at(member));
        done[results.back()] = true;
      }
      returned.push_back(stacks_[it->second]);
    }
    return returned;
  }

  // A stack gives its buffer to a stack if each of its members would to the one in the same place.
  void choose_aliases() {
    for (const std::vector<int64_t>& leaves : text_.arguments) {
      std::vector<size_t> takers;
      for (const int64_t leaf : leaves) {
        if (aliases_[leaf] >= 0) takers.push_back(static_cast<size_t>(aliases_[leaf]));
      }
      const auto it = takers.size() == leaves.size() ? std::find(text_.results.begin(), text_.results.end(), takers)
                                                     : text_.results.end();
      text_.aliases.push_back(it == text_.results.end() ? -1 : it - text_.results.begin());
    }
  }

  // --- values

  Value slice_of(const Value& stack, int64_t at) {
    Dims start(stack.dims().size(), 0), limit = stack.dims();
    start[0] = at;
    limit[0] = at + 1;
    return e_.reshape(e_.slice(stack, start, limit), Dims(limit.begin() + 1, limit.end()));
  }

  const Value& value(int64_t name) {
    Value& known = values_[name];
    if (known.defined()) return known;
    for (const auto s : c10::irange(program_.stacks.size())) {
      const auto& [kind, members] = stack(static_cast<int>(s));
      const auto it = std::find(members.begin(), members.end(), name);
      if (it == members.end() || kind == Stack::Kind::kValues || !stacks_[s].defined()) continue;
      known = slice_of(stacks_[s], it - members.begin());
      return known;
    }
    TORCH_INTERNAL_ASSERT(false, "value ", name, " of a rolled program is used before it is made");
  }

  const Value& stack_value(int number) {
    Value& known = stacks_[number];
    if (known.defined()) return known;
    Values members;
    for (const int64_t member : stack(number).members) {
      const Value& x = value(member);
      members.push_back(e_.reshape(x, stacked(x.type, 1).dims));
    }
    known = e_.concatenate(members, 0);
    return known;
  }

  // --- calls

  const std::string& function_of(const std::string& kind, const std::string& text) {
    const auto [by_text, is_new] = names_by_text_.try_emplace(text);
    if (is_new) {
      by_text->second = kind + '_' + std::to_string(names_by_text_.size() - 1);
      add_function(functions_, by_text->second, text);
    }
    return by_text->second;
  }
  const std::string& function_of(const Signature& s) {
    const auto [by_signature, is_new] = names_.try_emplace(&s);
    if (is_new) by_signature->second = function_of(s.function, s.text);
    return by_signature->second;
  }

  // The call's inputs are there; its numbers follow.
  Values emit(const Signature& s, const Values& arguments) {
    return e_.op("func.call", arguments, "callee = @" + function_of(s), s.output_types);
  }

  const Value& pack(const Type& type) const { return type.dtype == at::kDouble ? doubles_ : integers_; }

  Value number(const Type& type, int64_t place) {
    return e_.reshape(e_.slice(pack(type), {place}, {place + type.numel()}), type.dims);
  }

  void write_call(const Listing::Call& call) {
    const Signature& s = *call.signature;
    Values arguments;
    for (const int64_t input : call.inputs) arguments.push_back(value(input));
    for (const auto n : c10::irange(call.numbers.size())) {
      arguments.push_back(number(s.input_types[call.inputs.size() + n], call.numbers[n]));
    }
    text_.calls.emplace_back(call.source, call.source);
    const Values results = emit(s, arguments);
    for (const auto i : c10::irange(results.size())) values_[call.results[i]] = results[i];
  }

  // --- loops

  // The value in the layout that arguments have. A product in a loop may choose another for the stack that it makes,
  // and the compiler then copies the whole stack where it meets a parameter: once for each use, and after its
  // conversion to float32.
  Value row_major(const Value& x) {
    std::string order;
    for (int64_t d = x.type.rank() - 1; d >= 0; --d) order += std::to_string(d) + (d == 0 ? "" : ", ");
    const std::string layout = "[dense<[" + order + "]> : tensor<" + std::to_string(x.type.rank()) + "xindex>]";
    const std::string attributes = "call_target_name = \"LayoutConstraint\", operand_layouts = " + layout;
    return e_.op("custom_call", {x}, attributes + ", result_layouts = " + layout, {x.type})[0];
  }

  // A loop as its calls over whole stacks.
  void write_whole(const Loop& loop) {
    std::vector<bool> is_row_major(stacks_.size());
    for (const Loop::Read& read : loop.reads) {
      if (stack(read.stack).kind != Stack::Kind::kResults || is_row_major[read.stack]) continue;
      stacks_[read.stack] = row_major(stack_value(read.stack));
      is_row_major[read.stack] = true;
    }
    Values reads;
    for (const Loop::Read& read : loop.reads) {
      const Value& stack = stack_value(read.stack);
      const int64_t start = loop.reversed ? read.start + 1 - static_cast<int64_t>(loop.count) : read.start;
      reads.push_back(slice_dim(e_, stack, 0, start, start + static_cast<int64_t>(loop.count)));
    }
    std::unordered_map<int64_t, Value> inside;  // stacks
    for (const auto j : c10::irange(loop.period)) {
      const Listing::Call& call = listing_.calls[loop.first + j];
      Values arguments;
      for (const Loop::Operand& operand : loop.operands[j]) {
        arguments.push_back(operand.kind == Loop::Operand::Kind::kInside    ? inside.at(operand.which)
                            : operand.kind == Loop::Operand::Kind::kStacked ? reads[static_cast<size_t>(operand.which)]
                                                                            : value(operand.which));
      }
      for (const auto n : c10::irange(call.numbers.size())) {
        arguments.push_back(number(call.signature->input_types[call.inputs.size() + n], call.numbers[n]));
      }
      const StackedFunction& f = loop.whole[j];
      text_.calls.emplace_back(call.source, listing_.calls[loop.first + loop.period + j].source);
      const std::string& name = function_of(call.signature->function + kOverStacks, f.text);
      const Values results = e_.op("func.call", arguments, "callee = @" + name, f.output_types);
      for (const auto i : c10::irange(results.size())) inside[call.results[i]] = results[i];
    }
    const int64_t last = loop.reversed ? 0 : static_cast<int64_t>(loop.count) - 1;
    for (const int64_t kept : loop.kept) values_[last_of(loop, kept)] = slice_of(inside.at(kept), last);
    for (const Loop::Write& write : loop.writes) stacks_[write.stack] = inside.at(write.value);
  }

  // What a loop's iterations read of the stacks: one slice for each stack and direction.
  class Iteration {
   public:
    Iteration(Emitter& e, Value index) : e_(e), index_(std::move(index)) {}

    const Value& position(int64_t start, int64_t step) {
      Value& known = positions_[{start, step}];
      if (known.defined()) return known;
      if (step == 1) {
        known = start == 0 ? index_ : e_.add(index_, start);
      } else {
        known = e_.subtract(start, index_);
      }
      return known;
    }
    Values starts(int64_t start, int64_t step, int64_t rank) {
      Values all = {position(start, step)};
      if (!zero_.defined() && rank > 1) zero_ = e_.constant(0, index_.type);
      all.resize(static_cast<size_t>(rank), zero_);
      return all;
    }
    Value read(const Value& stack, int64_t start, int64_t step) {
      Dims sizes = stack.dims();
      sizes[0] = 1;
      const Value slice = e_.dynamic_slice(stack, starts(start, step, stack.rank()), sizes);
      return e_.reshape(slice, Dims(sizes.begin() + 1, sizes.end()));
    }
    Value write(const Value& stack, const Value& member, int64_t start, int64_t step) {
      return e_.dynamic_update_slice(stack, e_.reshape(member, stacked(member.type, 1).dims),
                                     starts(start, step, stack.rank()));
    }

   private:
    Emitter& e_;
    Value index_, zero_;
    std::map<std::pair<int64_t, int64_t>, Value> positions_;
  };

  void write_loop(const Loop& loop) {
    // What the body uses of outside has to be there before it.
    for (const auto& operands : loop.operands) {
      for (const Loop::Operand& operand : operands) {
        if (operand.kind == Loop::Operand::Kind::kOutside) value(operand.which);
      }
    }
    std::vector<std::vector<Value>> same(loop.period);  // by call, by number; undefined if they differ
    std::vector<std::vector<Value>> tables(loop.period);
    for (const auto j : c10::irange(loop.period)) {
      const Listing::Call& call = listing_.calls[loop.first + j];
      for (const auto n : c10::irange(call.numbers.size())) {
        const Type& type = call.signature->input_types[call.inputs.size() + n];
        std::vector<int64_t> places;
        for (const auto i : c10::irange(loop.count)) {
          places.push_back(listing_.calls[loop.first + i * loop.period + j].numbers[n]);
        }
        const bool is_drawn = call.signature->random && n + 1 == call.numbers.size();
        const bool is_equal = !is_drawn && listing_.is_same_number(type, places);
        same[j].push_back(is_equal ? number(type, places[0]) : Value());
        tables[j].push_back(is_equal ? Value() : table(type, places));
      }
    }
    const Type index_type(kIndex, {});
    Values initial = {e_.constant(0, index_type)};
    for (const Loop::Carried& c : loop.carried) initial.push_back(value(c.initial));
    for (const int64_t kept : loop.kept) initial.push_back(zeros(listing_.type(kept)));
    for (const Loop::Write& write : loop.writes) {
      const Stack& s = stack(write.stack);
      initial.push_back(write.replaces >= 0 ? stack_value(write.replaces)
                                            : zeros(stacked(listing_.type(s.members[0]), s.members.size())));
    }
    for (const Loop::Read& read : loop.reads) stack_value(read.stack);
    const Values done = e_.while_loop(
        initial,
        [&](const Values& state) {
          return Values{e_.compare("LT", state[0], e_.constant(static_cast<int64_t>(loop.count), index_type))};
        },
        [&](const Values& state) { return body(loop, state, same, tables); });
    size_t next = 1;
    for (const Loop::Carried& c : loop.carried) values_[last_of(loop, c.next)] = done[next++];
    for (const int64_t kept : loop.kept) values_[last_of(loop, kept)] = done[next++];
    for (const Loop::Write& write : loop.writes) stacks_[write.stack] = done[next++];
  }

  Value zeros(const Type& type) { return e_.constant(at::isComplexType(type.dtype) ? at::Scalar(0.0) : 0, type); }

  // [count, ...] of the numbers at the places.
  Value table(const Type& type, const std::vector<int64_t>& places) {
    std::vector<int64_t> all;
    for (const int64_t place : places) {
      for (const auto i : c10::irange(type.numel())) all.push_back(place + i);
    }
    return e_.reshape(take(e_, pack(type), 0, e_.list(all)), stacked(type, places.size()).dims);
  }

  Values body(const Loop& loop, const Values& state, const std::vector<std::vector<Value>>& same,
              const std::vector<std::vector<Value>>& tables) {
    const auto last = static_cast<int64_t>(loop.count) - 1;
    const int64_t start = loop.reversed ? last : 0, step = loop.reversed ? -1 : 1;
    const size_t first_carried = 1;
    const size_t first_kept = first_carried + loop.carried.size();
    const size_t first_write = first_kept + loop.kept.size();
    Iteration iteration(e_, state[0]);
    Values reads;
    for (const Loop::Read& read : loop.reads) {
      Value from = stacks_[read.stack];
      for (const auto w : c10::irange(loop.writes.size())) {
        if (loop.writes[w].replaces == read.stack) from = state[first_write + w];
      }
      reads.push_back(iteration.read(from, read.start, read.step));
    }
    std::unordered_map<int64_t, size_t> at_once;  // by value: the write of it
    for (const auto w : c10::irange(loop.writes.size())) {
      if (can_write_at_once(loop, loop.writes[w], start, step)) at_once.emplace(loop.writes[w].value, w);
    }
    Values written(loop.writes.size());
    std::unordered_map<int64_t, Value> inside;
    for (const auto j : c10::irange(loop.period)) {
      const Listing::Call& call = listing_.calls[loop.first + j];
      Values arguments;
      for (const Loop::Operand& operand : loop.operands[j]) {
        switch (operand.kind) {
          case Loop::Operand::Kind::kInside:
            arguments.push_back(inside.at(operand.which));
            break;
          case Loop::Operand::Kind::kCarried:
            arguments.push_back(state[first_carried + static_cast<size_t>(operand.which)]);
            break;
          case Loop::Operand::Kind::kOutside:
            arguments.push_back(values_.at(operand.which));
            break;
          case Loop::Operand::Kind::kStacked:
            arguments.push_back(reads[static_cast<size_t>(operand.which)]);
            break;
        }
      }
      for (const auto n : c10::irange(same[j].size())) {
        arguments.push_back(same[j][n].defined() ? same[j][n] : iteration.read(tables[j][n], 0, 1));
      }
      text_.calls.emplace_back(call.source, listing_.calls[loop.first + loop.period + j].source);
      const Values results = emit(*call.signature, arguments);
      for (const auto i : c10::irange(results.size())) {
        const int64_t value = call.results[i];
        inside[value] = results[i];
        const auto write = at_once.find(value);
        if (write == at_once.end()) continue;
        const size_t w = write->second;
        // Behind the barrier, or the compiler would see through the stack to the value that was put there.
        written[w] = e_.optimization_barrier(iteration.write(state[first_write + w], results[i], start, step));
        inside[value] = iteration.read(written[w], start, step);
      }
    }
    Values next = {e_.add(state[0], 1)};
    for (const Loop::Carried& c : loop.carried) next.push_back(inside.at(c.next));
    for (const int64_t kept : loop.kept) next.push_back(inside.at(kept));
    bool replaces = false;
    for (const auto w : c10::irange(loop.writes.size())) {
      const Loop::Write& write = loop.writes[w];
      replaces |= write.replaces >= 0 && !written[w].defined();
      next.push_back(written[w].defined() ? written[w]
                     : write.carried >= 0 ? state[first_carried + static_cast<size_t>(write.carried)]
                                          : inside.at(write.value));
    }
    if (replaces) next = all_computed(next);
    for (const auto w : c10::irange(loop.writes.size())) {
      Value& member = next[first_write + w];
      if (!written[w].defined()) member = iteration.write(state[first_write + w], member, start, step);
    }
    return next;
  }

  // A stack that gives its buffer is overwritten in place if nothing that is computed after the write reads what was
  // there: else the compiler copies the whole stack in every iteration. True if that holds as soon as the new member is
  // there: then it is written where it is computed, and what uses it reads it back.
  bool can_write_at_once(const Loop& loop, const Loop::Write& write, int64_t start, int64_t step) const {
    if (write.replaces < 0 || write.carried >= 0) return false;
    using Kind = Loop::Operand::Kind;
    std::vector<int64_t> old;  // reads of the stack
    for (const auto r : c10::irange(loop.reads.size())) {
      const Loop::Read& read = loop.reads[r];
      if (read.stack != write.replaces) continue;
      if (read.start != start || read.step != step) return false;
      old.push_back(static_cast<int64_t>(r));
    }
    const auto holds = [](c10::ArrayRef<int64_t> some, int64_t one) {
      return std::find(some.begin(), some.end(), one) != some.end();
    };
    std::vector<int64_t> from_old;  // values that are computed from what was there
    bool is_made = false;
    for (const auto j : c10::irange(loop.period)) {
      const bool uses_old = std::any_of(loop.operands[j].begin(), loop.operands[j].end(), [&](const auto& operand) {
        return (operand.kind == Kind::kStacked && holds(old, operand.which)) ||
               (operand.kind == Kind::kInside && holds(from_old, operand.which));
      });
      const auto& results = listing_.calls[loop.first + j].results;
      const bool makes = holds(results, write.value);
      if (uses_old && (is_made || (makes && results.size() > 1))) return false;
      if (uses_old && !makes) from_old.insert(from_old.end(), results.begin(), results.end());
      is_made |= makes;
    }
    const auto leaves = [&](int64_t value) { return holds(from_old, value); };
    return std::none_of(loop.kept.begin(), loop.kept.end(), leaves) &&
           std::none_of(loop.carried.begin(), loop.carried.end(), [&](const auto& c) { return leaves(c.next); }) &&
           std::none_of(loop.writes.begin(), loop.writes.end(), [&](const auto& w) { return leaves(w.value); });
  }

  // The same values, none of which is computed after something that uses one.
  Values all_computed(const Values& values) {
    std::vector<Type> types;
    for (const Value& value : values) types.push_back(value.type);
    return e_.op("optimization_barrier", values, {}, types);
  }

  // What the last iteration makes where the first one makes `value`.
  int64_t last_of(const Loop& loop, int64_t value) const {
    for (const auto j : c10::irange(loop.period)) {
      const auto& results = listing_.calls[loop.first + j].results;
      const auto it = std::find(results.begin(), results.end(), value);
      if (it == results.end()) continue;
      return listing_.calls[loop.first + (loop.count - 1) * loop.period + j].results[it - results.begin()];
    }
    TORCH_INTERNAL_ASSERT(false, "a loop does not make value ", value);
  }

  const Rolled& program_;
  const Listing& listing_;
  const std::vector<int64_t>& live_;
  const std::vector<int64_t>& aliases_;
  bool stacked_arguments_;
  Emitter e_;
  ModuleText text_;
  std::unordered_map<int64_t, Value> values_;  // by name, of values outside of loops
  Values stacks_;                              // by stack, once it is there
  Value doubles_, integers_;
  std::string functions_;
  std::unordered_map<const Signature*, std::string> names_;
  std::unordered_map<std::string_view, std::string> names_by_text_;
};

}  // namespace

ModuleText write_module(const Rolled& program, const std::vector<int64_t>& live, const std::vector<int64_t>& aliases,
                        bool stacked_arguments) {
  return Writer(program, live, aliases, stacked_arguments).run();
}

}  // namespace torch_tpu
