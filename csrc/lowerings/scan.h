// Inclusive scans along one dimension, in logarithmic depth.
#pragma once

#include "stablehlo/emitter.h"

namespace torch_tpu {

// Scan with one operation ("add", "multiply", "maximum", "minimum"). `identity` is 0-d.
Value scan(Emitter& e, const Value& x, const Value& identity, int64_t dim, std::string_view name);

// Combines what stands left (earlier) with what stands right, elementwise over values of equal dims.
// REQUIRES: associative, and the identities are its left identity.
using ScanStep = std::function<Values(const Values& left, const Values& right)>;
Values scan(Emitter& e, const Values& xs, const Values& identities, int64_t dim, const ScanStep& step);

}  // namespace torch_tpu
