// Division of 64-bit integers in operations that a TPU's compiler takes quickly.
#pragma once

#include "stablehlo/emitter.h"

namespace torch_tpu {

// As stablehlo.divide and stablehlo.remainder have them: towards zero, the remainder with the dividend's sign, and by
// zero -1 and the dividend.
// REQUIRES: both of one 64-bit integer type.
Value wide_quotient(Emitter& e, const Value& a, const Value& b);
Value wide_remainder(Emitter& e, const Value& a, const Value& b);

}  // namespace torch_tpu
