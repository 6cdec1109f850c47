// See foreign.h.
#include "lowerings/foreign.h"

#include <c10/util/Exception.h>

namespace torch_tpu {

namespace {

thread_local std::string called;

// results: for each, its dtype (an at::ScalarType), its rank and its dims.
std::vector<Type> foreign_types(const Call& c) {
  const std::vector<int64_t> given = c.integers("results");
  std::vector<Type> types;
  for (size_t i = 0; i + 1 < given.size();) {
    const auto dtype = static_cast<at::ScalarType>(given[i]);
    const auto first = given.begin() + static_cast<std::ptrdiff_t>(i) + 2;
    types.emplace_back(dtype, Dims(first, first + given[i + 1]));
    i += 2 + static_cast<size_t>(given[i + 1]);
  }
  return types;
}

// functions: text, of which the first function is called. Its name tells it from all others.
Values lower_foreign(Emitter& e, const Call& c) {
  const std::string functions = c.text("functions");
  TORCH_CHECK_VALUE(functions.rfind(kForeignFunction, 0) == 0, "tpu: foreign functions begin with `", kForeignFunction,
                    "`: got `", functions.substr(0, 40), "`.\nUse torch_tpu.pallas, which writes them.");
  TORCH_CHECK_NOT_IMPLEMENTED(
      c.context().tpu || functions.find("@tpu_custom_call") == std::string::npos,
      "tpu: a Pallas kernel runs on a TPU, and this program is for the CPU plugin.\nGive the op another form for it: "
      "torch_tpu.pallas.register(..., otherwise=function).");
  const size_t at = functions.find('@');
  const std::string name = functions.substr(at, functions.find('(') - at);
  called += functions;
  return e.op("func.call", c.tensors("operands"), "callee = " + name, foreign_types(c));
}

}  // namespace

std::string take_foreign_functions() { return std::exchange(called, {}); }

void add_foreign(Table& t) { t.add("torch_tpu::foreign", lower_foreign).with_shape(foreign_types); }

}  // namespace torch_tpu
