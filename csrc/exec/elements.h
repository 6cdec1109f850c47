// A call of a list op taken apart: what it does to one element of its lists, as a call of its own.
#pragma once

#include <c10/util/SmallVector.h>

#include <vector>

#include "exec/signature.h"

namespace torch_tpu {

struct Element {
  const Signature* signature = nullptr;
  // Positions among the whole call's: the inputs from cells, the numbers, the outputs.
  c10::SmallVector<int, 4> inputs, numbers, outputs;
};

// The elements of a call, in order; empty if it is no list op, or its elements share what they write.
const std::vector<Element>& elements_of(const Signature& whole);

}  // namespace torch_tpu
