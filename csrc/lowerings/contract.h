// Sums of products, as PyTorch counts them: what every matrix product is made of.
#pragma once

#include "stablehlo/emitter.h"

namespace torch_tpu {

// dot_general of a and b, which have one dtype. The result has the dtype that PyTorch accumulates in:
// bfloat16, half and narrower floats give float32, all others their own. Integers wrap around exactly;
// a contraction over nothing gives zeros.
Value contract(Emitter& e, const Value& a, const Value& b, const DotDims& dims, Precision precision);

// The matrix product of the last two dims: rank 2, or rank 3 with one batch dim.
Value matrix_product(Emitter& e, const Value& a, const Value& b, Precision precision);

}  // namespace torch_tpu
