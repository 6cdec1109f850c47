// A call's function over stacks of its operands: what a loop over their members would compute, as one call.
// Only of functions that work on elements one by one, which the text of the function shows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "exec/signature.h"

namespace torch_tpu {

struct StackedFunction {
  std::string text;  // as Signature::text
  std::vector<Type> output_types;
};

Type stacked(const Type& type, size_t count);

// `is_stack`: by input that is no number, whether it is a stack of `count`; all results are. None if the function does
// anything else than work on elements.
std::optional<StackedFunction> over_stacks(const Signature& s, const std::vector<bool>& is_stack, size_t count);

}  // namespace torch_tpu
