// Ops without a row run on the CPU: never silently. One warning an op says where; every
// call is counted; TORCH_TPU_FALLBACK=error raises instead.
#include <ATen/core/Tensor.h>
#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include <cstdlib>
#include <mutex>
#include <sstream>
#include <string>
#include <unordered_set>

#include "aten/meta.h"
#include "exec/abstract.h"
#include "exec/counters.h"
#include "exec/journal.h"
#include "exec/policy.h"

namespace torch_tpu {

namespace {

// `self: Float[2, 3], other: Long[]`.
std::string describe(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  std::ostringstream out;
  const auto& arguments = op.schema().arguments();
  const size_t base = stack.size() - arguments.size();
  bool first = true;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = stack[base + i];
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const at::Tensor& t = value.toTensor();
    out << (first ? "" : ", ") << arguments[i].name() << ": " << t.scalar_type() << t.sizes();
    first = false;
  }
  return out.str();
}

// A functional op without a row arrives as its out= overload: people know it by the family's name.
std::string family(const c10::OperatorHandle& op) { return op.operator_name().name; }

bool first_time(const std::string& name) {
  static std::mutex lock;
  static auto* seen = new std::unordered_set<std::string>();
  const std::lock_guard guard(lock);
  return seen->insert(name).second;
}

bool raises() {
  const char* choice = std::getenv("TORCH_TPU_FALLBACK");
  return choice != nullptr && std::string(choice) == "error";
}

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Counters::add(Counter::kFallbacks);
  const std::string name = family(op);
  if (AbstractSession* session = AbstractSession::active()) {
    session->unsupported(name, describe(op, *stack));
    const auto make = [session](const Type& type, int device) { return session->input(type, device, false); };
    TORCH_CHECK_NOT_IMPLEMENTED(answer_without_data(op, *stack, make), "tpu: no lowering for ", name, "(",
                                describe(op, *stack), "), and PyTorch cannot say what it returns without data.");
    return;
  }
  Journal::add({.kind = Event::Kind::kFallback, .what = name + "(" + describe(op, *stack) + ")"});
  Journal::locate();
  TORCH_CHECK_NOT_IMPLEMENTED(
      !raises(), "tpu: no lowering for ", name, "(", describe(op, *stack),
      ").\nCall it on the CPU and move the result back, or add a row to csrc/lowerings; docs/adding_an_op.md "
      "shows how. (TORCH_TPU_FALLBACK=error turns fallback to the CPU off.)");
  if (first_time(name)) {
    const std::string where = python_location();
    TORCH_WARN("tpu: no lowering for ", name, "(", describe(op, *stack), ")", where.empty() ? "" : " at " + where,
               ": it runs on the CPU, which copies its operands there and back. (Said once an op; "
               "TORCH_TPU_FALLBACK=error raises instead.)");
  }
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>()); }

}  // namespace

}  // namespace torch_tpu
