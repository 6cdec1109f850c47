#include "exec/over_stacks.h"

#include <c10/util/Exception.h>
#include <c10/util/irange.h>

#include <charconv>
#include <unordered_map>
#include <unordered_set>

#include "stablehlo/emitter.h"

namespace torch_tpu {

namespace {

// Each element of the result is computed from the elements of the operands in the same place.
const std::unordered_set<std::string_view>& elementwise() {
  static const auto* ops = new std::unordered_set<std::string_view>{
      "abs",       "add",    "and",          "cbrt",     "ceil",        "compare",
      "convert",   "cosine", "divide",       "floor",    "exponential", "exponential_minus_one",
      "is_finite", "log",    "log_plus_one", "logistic", "maximum",     "minimum",
      "multiply",  "negate", "not",          "or",       "power",       "remainder",
      "rsqrt",     "select", "sign",         "sine",     "sqrt",        "subtract",
      "tanh",      "xor"};
  return *ops;
}

bool take(std::string_view& text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// Up to `end`, which is taken too.
std::optional<std::string_view> take_until(std::string_view& text, std::string_view end) {
  const size_t at = text.find(end);
  if (at == std::string_view::npos) return {};
  const std::string_view before = text.substr(0, at);
  text.remove_prefix(at + end.size());
  return before;
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    if (const auto part = take_until(text, ", ")) {
      parts.push_back(*part);
    } else {
      parts.push_back(text);
      break;
    }
  }
  return parts;
}

std::optional<Type> type_of(std::string_view text) {
  static const auto* by_name = [] {
    auto* names = new std::unordered_map<std::string_view, at::ScalarType>();
    for (const auto i : c10::irange(static_cast<int>(at::ScalarType::NumOptions))) {
      const auto dtype = static_cast<at::ScalarType>(i);
      if (has_element_name(dtype)) names->emplace(element_name(dtype), dtype);
    }
    return names;
  }();
  if (!take(text, "tensor<") || text.empty() || text.back() != '>') return {};
  text.remove_suffix(1);
  Type type;
  int64_t size = 0;
  while (true) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error != std::errc() || end == text.data() + text.size() || *end != 'x') break;
    type.dims.push_back(size);
    text.remove_prefix(static_cast<size_t>(end + 1 - text.data()));
  }
  const auto found = by_name->find(text);
  if (found == by_name->end()) return {};
  type.dtype = found->second;
  return type;
}

// `array<i64: 0, 1>`, in `name = array<i64: 0, 1>`; the numbers.
std::optional<Dims> array_of(std::string_view attributes, std::string_view name) {
  if (!take(attributes, name) || !take(attributes, " = array<i64") || attributes.empty()) return {};
  attributes.remove_suffix(1);
  take(attributes, ": ");
  Dims numbers;
  for (const std::string_view part : split(attributes)) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (error != std::errc() || end != part.data() + part.size()) return {};
    numbers.push_back(number);
  }
  return numbers;
}

Dims after_first(const Dims& dims) {
  Dims shifted = {0};
  for (const int64_t d : dims) shifted.push_back(d + 1);
  return shifted;
}

// Goes through the function's lines, one operation each.
class Rewriting {
 public:
  Rewriting(const Signature& s, const std::vector<bool>& is_stack, size_t count) : count_(count) {
    for (const auto i : c10::irange(s.input_types.size())) {
      const bool stack = i < is_stack.size() && is_stack[i];
      add(e_.input(stack ? stacked(s.input_types[i], count) : s.input_types[i]), stack);
    }
  }

  std::optional<StackedFunction> run(std::string_view text) {
    if (!take_until(text, ") {\n")) return {};
    while (const auto line = take_until(text, "\n")) {
      std::string_view rest = *line;
      if (take(rest, "  return ")) return text == "}\n" ? finish(rest) : std::nullopt;
      if (!operation(rest)) return {};
    }
    return {};
  }

 private:
  struct Known {
    Value value;
    bool is_stack = false;
  };

  void add(const Value& value, bool is_stack) {
    known_.emplace("%" + std::to_string(known_.size()), Known{value, is_stack});
  }

  Value as_stack(const Known& known) {
    if (known.is_stack) return known.value;
    const Type type = stacked(known.value.type, count_);
    Dims where;
    for (const auto i : c10::irange(known.value.type.rank())) where.push_back(i + 1);
    return e_.broadcast_in_dim(known.value, type.dims, where);
  }

  bool operation(std::string_view line) {
    if (!take(line, "  ")) return false;
    const auto name = take_until(line, " = \"stablehlo.");
    if (!name || *name != "%" + std::to_string(known_.size())) return false;
    const auto op = take_until(line, "\"(");
    const auto names = take_until(line, ")");
    const size_t types = line.rfind(" : (");
    const size_t arrow = line.rfind(") -> ");
    if (!op || !names || types == std::string_view::npos || arrow == std::string_view::npos) return false;
    const auto type = type_of(line.substr(arrow + 5));
    std::string_view attributes = line.substr(0, types);
    if (!type ||
        (!attributes.empty() && (!take(attributes, " <{") || attributes.substr(attributes.size() - 2) != "}>")))
      return false;
    if (!attributes.empty()) attributes.remove_suffix(2);
    std::vector<Known> operands;
    bool is_stack = false;
    for (const std::string_view operand : split(*names)) {
      const auto found = known_.find(std::string(operand));
      if (found == known_.end()) return false;
      operands.push_back(found->second);
      is_stack |= found->second.is_stack;
    }
    Values values;
    for (const Known& operand : operands) values.push_back(is_stack ? as_stack(operand) : operand.value);
    const Type result = is_stack ? stacked(*type, count_) : *type;
    std::string with(attributes);
    if (is_stack && *op == "broadcast_in_dim") {
      const auto where = array_of(attributes, "broadcast_dimensions");
      if (!where) return false;
      with = "broadcast_dimensions = " + array_attribute(after_first(*where));
    } else if (is_stack && *op != "reshape") {
      if (elementwise().count(*op) == 0) return false;
      for (const Value& value : values) {
        if (value.dims() != result.dims) return false;
      }
    }
    add(e_.op(*op, values, with, {result})[0], is_stack);
    return true;
  }

  std::optional<StackedFunction> finish(std::string_view line) {
    const auto names = take_until(line, " : ");
    if (!names) return {};
    StackedFunction function;
    Values results;
    for (const std::string_view name : split(*names)) {
      const auto found = known_.find(std::string(name));
      if (found == known_.end()) return {};
      results.push_back(as_stack(found->second));
      function.output_types.push_back(results.back().type);
    }
    const std::string text = e_.finish("stacked", results);
    function.text = text.substr(text.find('('));
    return function;
  }

  size_t count_;
  Emitter e_;
  std::unordered_map<std::string, Known> known_;  // by name in the function
};

}  // namespace

Type stacked(const Type& type, size_t count) {
  Type stack = type;
  stack.dims.insert(stack.dims.begin(), static_cast<int64_t>(count));
  return stack;
}

std::optional<StackedFunction> over_stacks(const Signature& s, const std::vector<bool>& is_stack, size_t count) {
  return s.random ? std::nullopt : Rewriting(s, is_stack, count).run(s.text);
}

}  // namespace torch_tpu
