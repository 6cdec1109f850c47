// Runs the calls of a recorded program as one program each, as Strict does.
#include <c10/util/irange.h>

#include <algorithm>

#include "exec/program.h"

namespace torch_tpu {

void Program::run_call_by_call(const std::vector<int64_t>& live) {
  // By result: the last call that takes it; by leaf too. What nothing live needs is not run.
  std::vector<bool> needed(results_.size());
  std::vector<size_t> last_use(results_.size()), last_use_of_leaf(leaves_.size());
  for (const int64_t slot : live) needed[slot] = true;
  std::vector<bool> runs(calls_.size());
  for (size_t i = calls_.size(); i-- > 0;) {
    const Recorded& call = calls_[i];
    for (const auto r : c10::irange(call.signature->output_types.size()))
      runs[i] = runs[i] || needed[call.first_result + r];
    if (!runs[i]) continue;
    for (const auto k : c10::irange(call.signature->input_cells.size())) {
      const int64_t operand = operands_[call.first_input + k];
      if (operand >= 0) needed[operand] = true;
      size_t& last = operand < 0 ? last_use_of_leaf[~operand] : last_use[operand];
      last = std::max(last, i);
    }
  }

  compile_calls_ahead(runs, last_use, last_use_of_leaf);

  // A value is given up at its last use, so that it can be donated as if it had been run at once.
  const auto take = [](DeviceValuePtr& value, bool is_last) { return is_last ? std::move(value) : value; };
  size_t next_double = 0, next_integer = 0;
  Program single(device_);
  for (const auto i : c10::irange(calls_.size())) {
    const Recorded& call = calls_[i];
    const Signature& signature = *call.signature;
    Submission submission;
    submission.signature = &signature;
    for (const NumberKind kind : signature.numbers) {
      if (kind == NumberKind::kInteger) {
        submission.integers.push_back(integers_[next_integer++]);
        continue;
      }
      submission.doubles.push_back(doubles_[next_double++]);
      if (kind == NumberKind::kComplex) submission.doubles.push_back(doubles_[next_double++]);
    }
    for (int k = 0; signature.random && k < 2; ++k) submission.integers.push_back(integers_[next_integer++]);
    if (!runs[i]) continue;
    const auto inputs = c10::irange(signature.input_cells.size());
    for (const auto k : inputs) {
      const int64_t operand = operands_[call.first_input + k];
      submission.inputs.push_back(operand < 0 ? leaves_[~operand] : results_[operand]);
    }
    for (const auto k : inputs) {
      const int64_t operand = operands_[call.first_input + k];
      if (operand < 0 && last_use_of_leaf[~operand] == i) leaves_[~operand].reset();
      if (operand >= 0 && last_use[operand] == i) results_[operand].reset();
    }
    DeviceValues outputs;
    for (const auto r : c10::irange(signature.output_types.size())) {
      const size_t slot = call.first_result + r;
      outputs.push_back(take(results_[slot], last_use[slot] <= i));
    }
    single.record(submission, std::move(outputs));
    started_ = true;
    single.run(/*last=*/true);
  }
}

}  // namespace torch_tpu
