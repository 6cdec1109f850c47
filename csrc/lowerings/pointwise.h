// How the pointwise families read their operands and choose what to compute in.
// A function of values (Math) knows nothing of calls: it gets operands of one
// dtype and of the same dims, and rows are made of it here.
#pragma once

#include <string_view>

#include "lowerings/table.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

using Names = std::vector<std::string_view>;

// A tensor or number, in `dtype`, in its own dims. A number is converted once, from its full precision.
Value operand(Emitter& e, const Call& c, std::string_view name, at::ScalarType dtype);
// The operands named, in `dtype`, at their common dims.
Values operands(Emitter& e, const Call& c, const Names& names, at::ScalarType dtype);
// `values` at their common dims.
Values broadcast_all(Emitter& e, const Values& values);

using UnaryMath = Value (*)(Emitter&, const Value&);
using BinaryMath = Value (*)(Emitter&, const Value&, const Value&);
using TernaryMath = Value (*)(Emitter&, const Value&, const Value&, const Value&);

// Rows of functions. The math gets its operands in the common dtype ...
Row& add_exact(Table& t, std::string_view name, UnaryMath math, std::string_view x = "self");
Row& add_exact(Table& t, std::string_view name, BinaryMath math, std::string_view a = "self",
               std::string_view b = "other");
// ... or that widened to opmath(), and the result is rounded once to the common dtype.
// `how` says what integers become; a math of kDefault gets integers as they are.
Row& add_math(Table& t, std::string_view name, UnaryMath math, std::string_view x = "self",
              Promote how = Promote::kIntToFloat);
Row& add_math(Table& t, std::string_view name, BinaryMath math, std::string_view a = "self",
              std::string_view b = "other", Promote how = Promote::kIntToFloat);
// As PyTorch's arithmetic with a number: that one keeps its full precision, instead of being rounded to
// the common dtype first. Of self and other.
Row& add_arithmetic(Table& t, std::string_view name, BinaryMath math, Promote how = Promote::kDefault);
// Of self, by one StableHLO or CHLO operation.
Row& add_math(Table& t, std::string_view name, std::string_view operation);

bool is_floating(const Value& x);
bool is_complex(const Value& x);
// A splat in x's type.
Value like(Emitter& e, const at::Scalar& value, const Value& x);
// 0-d: whether any element of a bool value is true.
Value any_of(Emitter& e, const Value& pred);
Value conjugate(Emitter& e, const Value& x);
// 1 / (1 + exp(-x))
Value sigmoid(Emitter& e, const Value& x);
// x * factor; a complex x part by part, so that inf and NaN stay in theirs.
Value scaled(Emitter& e, const Value& x, double factor);
// x's absolute value in a real dtype; integers without a sign stay as they are.
Value magnitude(Emitter& e, const Value& x);
Value square(Emitter& e, const Value& x);
// 1 - x, 1 + x and 1 / x.
Value one_minus(Emitter& e, const Value& x);
Value one_plus(Emitter& e, const Value& x);
Value reciprocal(Emitter& e, const Value& x);
// x in (low, high), x in [low, high].
Value between(Emitter& e, const Value& x, double low, double high);
Value within(Emitter& e, const Value& x, double low, double high);
// True where x is +-inf. REQUIRES: x is floating.
Value is_infinite(Emitter& e, const Value& x);
// The integer dtype as wide as a floating `dtype`.
at::ScalarType bits_dtype(at::ScalarType dtype);
// x's bits, as signed integers.
Value bits_of(Emitter& e, const Value& x);
// True where the sign bit is set, -0.0 and NaN too. REQUIRES: x is floating.
Value has_sign_bit(Emitter& e, const Value& x);
// |x| with the sign bit of `sign`.
Value copy_sign(Emitter& e, const Value& x, const Value& sign);
// 2^x, exact where x is an integer.
Value exp2(Emitter& e, const Value& x);
// log2(x), exact where x is a power of two.
Value log2(Emitter& e, const Value& x);
// x = mantissa * 2^exponent, mantissa in [0.5, 1); exponents are int32. 0, inf and NaN have exponent 0.
std::pair<Value, Value> split_exponent(Emitter& e, const Value& x);
// As sign(): -1, 0, 1 (NaN: 0); complex: x / |x|.
Value sign_of(Emitter& e, const Value& x);
// Towards zero.
Value truncate(Emitter& e, const Value& x);
// The sum of c[k] T_k(t), without the terms that x's dtype cannot show.
Value chebyshev_sum(Emitter& e, const Value& t, c10::ArrayRef<double> c);

}  // namespace torch_tpu
