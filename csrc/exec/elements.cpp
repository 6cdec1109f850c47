#include "exec/elements.h"

#include <c10/util/irange.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

namespace torch_tpu {

namespace {

// Signatures that say the same are one, so that equal elements are seen to be equal.
const Signature* interned(std::unique_ptr<Signature> signature) {
  static auto* known = new std::unordered_map<std::string, std::unique_ptr<Signature>>();
  return known->try_emplace(signature->row->name + signature->text, std::move(signature)).first->second.get();
}

// The length of the lists; -1 if they differ, 0 if there are none.
int64_t length_of(const CallSpec& spec) {
  int64_t length = 0;
  const auto take = [&](size_t n) {
    if (n == 0 || length < 0) return;
    length = length == 0 || length == static_cast<int64_t>(n) ? static_cast<int64_t>(n) : -1;
  };
  for (const ArgumentSpec& a : spec.arguments) {
    if (const auto* operands = std::get_if<std::vector<OperandSpec>>(&a)) take(operands->size());
    if (const auto* numbers = std::get_if<std::vector<NumberSpec>>(&a)) take(numbers->size());
  }
  return length;
}

// Makes the spec of one element, and notes which of the whole's cells and numbers it takes.
class Extraction {
 public:
  explicit Extraction(const CallSpec& whole) : whole_(whole) {}

  CallSpec run(size_t element) {
    CallSpec& one = one_;
    one.row = whole_.row;
    one.names = whole_.names;
    one.context = whole_.context;
    for (const ArgumentSpec& a : whole_.arguments) {
      if (const auto* operands = std::get_if<std::vector<OperandSpec>>(&a)) {
        std::vector<OperandSpec> list;
        if (!operands->empty()) list.push_back(operand((*operands)[element]));
        one.arguments.emplace_back(std::move(list));
      } else if (const auto* numbers = std::get_if<std::vector<NumberSpec>>(&a)) {
        std::vector<NumberSpec> list;
        if (!numbers->empty()) list.push_back({number((*numbers)[element].number), (*numbers)[element].value});
        one.arguments.emplace_back(std::move(list));
      } else if (const auto* operand_spec = std::get_if<OperandSpec>(&a)) {
        one.arguments.emplace_back(operand(*operand_spec));
      } else if (const auto* number_spec = std::get_if<NumberSpec>(&a)) {
        one.arguments.emplace_back(NumberSpec{number(number_spec->number), number_spec->value});
      } else {
        one.arguments.push_back(a);
      }
    }
    for (const WrittenSpec& w : whole_.written) {
      if (w.element == static_cast<int>(element)) one.written.push_back({w.argument, 0});
    }
    if (!whole_.results.empty()) one.results.push_back(whole_.results[element]);
    return std::move(one_);
  }
  // By cell and by number of the element: the whole's.
  const std::vector<int>& cells() const { return cells_; }
  const std::vector<int>& numbers() const { return numbers_; }

 private:
  static int place(std::vector<int>& list, int item) {
    const auto it = std::find(list.begin(), list.end(), item);
    if (it != list.end()) return static_cast<int>(it - list.begin());
    list.push_back(item);
    return static_cast<int>(list.size() - 1);
  }
  OperandSpec operand(OperandSpec o) {
    if (o.cell >= 0) {
      const int cell = place(cells_, o.cell);
      if (cell == static_cast<int>(one_.cells.size())) {
        one_.cells.push_back(whole_.cells[o.cell]);
        one_.cell_empty.push_back(whole_.cell_empty[o.cell]);
      }
      o.cell = cell;
    }
    if (o.number >= 0) o.number = number(o.number);
    return o;
  }
  int number(int n) {
    const int at = place(numbers_, n);
    if (at == static_cast<int>(one_.numbers.size())) one_.numbers.push_back(whole_.numbers[n]);
    return at;
  }

  const CallSpec& whole_;
  CallSpec one_;
  std::vector<int> cells_, numbers_;
};

int position(const std::vector<int>& list, int item) {
  return static_cast<int>(std::find(list.begin(), list.end(), item) - list.begin());
}

// By number of a call: its first number input; a complex number takes two.
std::vector<int> first_inputs(const std::vector<NumberKind>& numbers) {
  std::vector<int> first;
  int next = 0;
  for (const NumberKind kind : numbers) {
    first.push_back(next);
    next += kind == NumberKind::kComplex ? 2 : 1;
  }
  return first;
}

std::vector<Element> split(const Signature& whole) {
  const CallSpec& spec = *whole.spec;
  const int64_t length = length_of(spec);
  if (length < 2 || whole.random) return {};
  if (!spec.results.empty() && spec.results.size() != static_cast<size_t>(length)) return {};
  for (const WrittenSpec& w : spec.written) {
    if (w.element < 0) return {};
  }
  std::vector<int> fresh_outputs;  // by element
  int outputs = 0;
  for (const ResultSpec& r : spec.results) fresh_outputs.push_back(r.defined ? outputs++ : -1);
  const std::vector<int> number_inputs = first_inputs(spec.numbers);
  std::vector<int> users(spec.cells.size(), 0);  // elements that take a cell
  std::vector<Element> elements;
  size_t taken = 0;
  for (const auto e : c10::irange(static_cast<size_t>(length))) {
    Extraction extraction(spec);
    const CallSpec one = extraction.run(e);
    bool observed_more = false;
    auto signature = lower(one, observed_more);
    Element element;
    for (const int cell : signature->input_cells) {
      element.inputs.push_back(position(whole.input_cells, extraction.cells()[cell]));
    }
    for (const int n : extraction.numbers()) {
      element.numbers.push_back(number_inputs[n]);
      if (spec.numbers[n] == NumberKind::kComplex) element.numbers.push_back(number_inputs[n] + 1);
    }
    if (!spec.results.empty() && fresh_outputs[e] >= 0) element.outputs.push_back(fresh_outputs[e]);
    for (const int cell : signature->written_cells) {
      element.outputs.push_back(outputs + position(whole.written_cells, extraction.cells()[cell]));
    }
    taken += element.outputs.size();
    for (const int cell : extraction.cells()) ++users[cell];
    element.signature = interned(std::move(signature));
    elements.push_back(std::move(element));
  }
  // Elements that write to one cell follow each other; and each output has to come from one element.
  for (const int cell : whole.written_cells) {
    if (users[cell] > 1) return {};
  }
  return taken == whole.output_types.size() ? elements : std::vector<Element>();
}

}  // namespace

const std::vector<Element>& elements_of(const Signature& whole) {
  static const std::vector<Element> none;
  if (!whole.spec) return none;
  static auto* memo = new std::unordered_map<uint64_t, std::vector<Element>>();  // by the whole's id
  const std::lock_guard guard(lowering_lock());
  const auto it = memo->find(whole.id);
  return it != memo->end() ? it->second : memo->emplace(whole.id, split(whole)).first->second;
}

}  // namespace torch_tpu
