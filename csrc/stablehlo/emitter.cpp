// The function's text, the generic operation, elementwise and shape operations.
// Constants are in constants.cpp; reductions, indexing, contractions, control
// flow and the rest in emitter_regions.cpp.
#include "stablehlo/emitter.h"

#include <c10/util/Exception.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <unordered_map>

#include "stablehlo/wide_division.h"

namespace torch_tpu {

namespace {

// `%0, %1`.
void append_names(std::string& text, const Values& values) {
  for (const auto i : c10::irange(values.size())) {
    TORCH_INTERNAL_ASSERT(values[i].defined(), "an undefined value is used as an operand");
    if (i != 0) text += ", ";
    text += '%';
    text += std::to_string(values[i].id);
  }
}

void append_type(std::string& text, const Type& type) {
  text += "tensor<";
  for (const int64_t d : type.dims) {
    text += std::to_string(d);
    text += 'x';
  }
  text += element_name(type.dtype);
  text += '>';
}

// `tensor<..>, tensor<..>`.
void append_types(std::string& text, const Values& values) {
  for (const auto i : c10::irange(values.size())) {
    if (i != 0) text += ", ";
    append_type(text, values[i].type);
  }
}

// `%0: tensor<..>, %1: tensor<..>`.
void append_arguments(std::string& text, const Values& values, const std::vector<std::string>& attributes = {}) {
  for (const auto i : c10::irange(values.size())) {
    if (i != 0) text += ", ";
    text += '%';
    text += std::to_string(values[i].id);
    text += ": ";
    append_type(text, values[i].type);
    if (i < attributes.size() && !attributes[i].empty()) {
      text += " {";
      text += attributes[i];
      text += '}';
    }
  }
}

std::string joined(c10::IntArrayRef values) {
  std::string text;
  for (const auto i : c10::irange(values.size())) {
    if (i != 0) text += ", ";
    text += std::to_string(values[i]);
  }
  return text;
}

bool is_iota(c10::IntArrayRef values) {
  for (const auto i : c10::irange(values.size())) {
    if (values[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

bool all_are(c10::IntArrayRef values, int64_t value) {
  return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == value; });
}

Dims filled(int64_t size, int64_t value) { return Dims(static_cast<size_t>(size), value); }

}  // namespace

std::string array_attribute(c10::IntArrayRef values) {
  return values.empty() ? "array<i64>" : "array<i64: " + joined(values) + ">";
}

std::string list_attribute(c10::IntArrayRef values) { return "[" + joined(values) + "]"; }

// --- the function and the generic operation

Value Emitter::input(const Type& type) {
  inputs_.push_back(fresh(type));
  return inputs_.back();
}

std::string Emitter::finish(std::string_view name, const Values& results, bool is_public,
                            const std::vector<std::string>& argument_attributes) {
  std::string text = is_public ? "func.func public @" : "func.func private @";
  text += name;
  text += '(';
  append_arguments(text, inputs_, argument_attributes);
  text += ") -> (";
  append_types(text, results);
  text += ") {\n";
  text += body_;
  text += "  return";
  if (!results.empty()) {
    text += ' ';
    append_names(text, results);
    text += " : ";
    append_types(text, results);
  }
  text += "\n}\n";
  body_.clear();
  return text;
}

Values Emitter::op(std::string_view name, const Values& operands, std::string_view attributes,
                   const std::vector<Type>& results, const std::vector<std::string>& regions) {
  Values values;
  values.reserve(results.size());
  for (const Type& type : results) values.push_back(fresh(type));

  body_ += "  ";
  append_names(body_, values);
  if (!values.empty()) body_ += " = ";
  body_ += '"';
  if (name.find('.') == std::string_view::npos) body_ += "stablehlo.";
  body_ += name;
  body_ += "\"(";
  append_names(body_, operands);
  body_ += ')';
  if (!attributes.empty()) {
    body_ += " <{";
    body_ += attributes;
    body_ += "}>";
  }
  if (!regions.empty()) {
    body_ += " (";
    for (const auto i : c10::irange(regions.size())) {
      if (i != 0) body_ += ", ";
      body_ += regions[i];
    }
    body_ += ')';
  }
  body_ += " : (";
  append_types(body_, operands);
  body_ += ") -> ";
  if (values.size() != 1) body_ += '(';
  append_types(body_, values);
  if (values.size() != 1) body_ += ')';
  body_ += '\n';
  return values;
}

Value Emitter::op1(std::string_view name, const Values& operands, std::string_view attributes, const Type& result,
                   const std::vector<std::string>& regions) {
  return op(name, operands, attributes, {result}, regions)[0];
}

std::string Emitter::region(const std::vector<Type>& arguments, const Region& body) {
  Values values;
  values.reserve(arguments.size());
  for (const Type& type : arguments) values.push_back(fresh(type));

  std::string outer = std::move(body_);
  body_.clear();
  const Values results = body(values);
  op("return", results, {}, {});
  std::string text = "{\n";
  if (!values.empty()) {
    text += "  ^bb0(";
    append_arguments(text, values);
    text += "):\n";
  }
  text += body_;
  text += "  }";
  body_ = std::move(outer);
  return text;
}

// --- elementwise

namespace {

enum Elements : uint8_t { kBools = 1, kIntegers = 2, kReals = 4, kComplexes = 8 };

// Refuses element types that an operation does not have: at the call, rather than when a program is compiled.
void check_elements(std::string_view op, at::ScalarType dtype) {
  constexpr uint8_t kDiscrete = kBools | kIntegers, kContinuous = kReals | kComplexes;
  static const auto* taken = new std::unordered_map<std::string_view, uint8_t>{
      {"and", kDiscrete},
      {"or", kDiscrete},
      {"xor", kDiscrete},
      {"not", kDiscrete},
      {"shift_left", kIntegers},
      {"shift_right_arithmetic", kIntegers},
      {"shift_right_logical", kIntegers},
      {"popcnt", kIntegers},
      {"count_leading_zeros", kIntegers},
      {"maximum", kDiscrete | kReals},
      {"minimum", kDiscrete | kReals},
      {"subtract", kIntegers | kContinuous},
      {"divide", kIntegers | kContinuous},
      {"remainder", kIntegers | kReals},
      {"power", kIntegers | kContinuous},
      {"negate", kIntegers | kContinuous},
      {"sign", kIntegers | kContinuous},
      {"abs", kIntegers | kContinuous},
      {"floor", kReals},
      {"ceil", kReals},
      {"round_nearest_afz", kReals},
      {"round_nearest_even", kReals},
      {"atan2", kReals},
      {"cbrt", kContinuous},
      {"cosine", kContinuous},
      {"exponential", kContinuous},
      {"exponential_minus_one", kContinuous},
      {"log", kContinuous},
      {"log_plus_one", kContinuous},
      {"logistic", kContinuous},
      {"rsqrt", kContinuous},
      {"sine", kContinuous},
      {"sqrt", kContinuous},
      {"tan", kContinuous},
      {"tanh", kContinuous},
      {"LT", kDiscrete | kReals},
      {"LE", kDiscrete | kReals},
      {"GT", kDiscrete | kReals},
      {"GE", kDiscrete | kReals},
  };
  const auto it = taken->find(op);
  if (it == taken->end()) return;
  const Elements kind = dtype == at::kBool                  ? kBools
                        : c10::isIntegralType(dtype, false) ? kIntegers
                        : c10::isComplexType(dtype)         ? kComplexes
                                                            : kReals;
  TORCH_CHECK_NOT_IMPLEMENTED((it->second & kind) != 0, '"', op, "_tpu\" not implemented for '", dtype, "'");
}

}  // namespace

Value Emitter::unary(std::string_view name, const Value& x) {
  check_elements(name, x.dtype());
  Type result = x.type;
  if (name == "is_finite" || name == "chlo.is_inf" || name == "chlo.is_pos_inf" || name == "chlo.is_neg_inf") {
    result.dtype = at::kBool;
  } else if (c10::isComplexType(x.dtype()) && (name == "abs" || name == "real" || name == "imag")) {
    result.dtype = c10::toRealValueType(x.dtype());
  }
  return op1(name, {x}, {}, result);
}

Value Emitter::binary(std::string_view name, const Value& a, const Value& b) {
  TORCH_INTERNAL_ASSERT(a.type == b.type, name, " on ", a.type, " and ", b.type);
  check_elements(name, a.dtype());
  if (!on_host_ && (a.dtype() == at::kLong || a.dtype() == at::kUInt64)) {
    if (name == "divide") return wide_quotient(*this, a, b);
    if (name == "remainder") return wide_remainder(*this, a, b);
  }
  return op1(name, {a, b}, {}, a.type);
}

Value Emitter::compare(std::string_view direction, const Value& a, const Value& b, bool total_order) {
  TORCH_INTERNAL_ASSERT(a.type == b.type, "compare ", direction, " on ", a.type, " and ", b.type);
  check_elements(direction, a.dtype());
  std::string attributes = "comparison_direction = #stablehlo<comparison_direction ";
  attributes += direction;
  attributes += '>';
  if (total_order && c10::isFloatingType(a.dtype())) {
    attributes += ", compare_type = #stablehlo<comparison_type TOTALORDER>";
  }
  return op1("compare", {a, b}, attributes, a.type.with(at::kBool));
}

Value Emitter::select(const Value& pred, const Value& on_true, const Value& on_false) {
  TORCH_INTERNAL_ASSERT(on_true.type == on_false.type, "select of ", on_true.type, " and ", on_false.type);
  TORCH_INTERNAL_ASSERT(pred.dtype() == at::kBool && (pred.rank() == 0 || pred.dims() == on_true.dims()), "select by ",
                        pred.type, " of ", on_true.type);
  return op1("select", {pred, on_true, on_false}, {}, on_true.type);
}

Value Emitter::clamp(const Value& low, const Value& x, const Value& high) {
  for (const Value& bound : {low, high}) {
    TORCH_INTERNAL_ASSERT(bound.type == x.type || bound.type == Type(x.dtype(), {}), "clamp of ", x.type, " by ",
                          bound.type);
  }
  return op1("clamp", {low, x, high}, {}, x.type);
}

Value Emitter::convert(const Value& x, at::ScalarType dtype) {
  const at::ScalarType from = x.dtype();
  if (from == dtype) return x;
  if (dtype == at::kBool) return compare("NE", x, at::Scalar(0));
  if (c10::isComplexType(from) && !c10::isComplexType(dtype)) return convert(real(x), dtype);
  if (c10::isComplexType(dtype) && !c10::isComplexType(from)) {
    const Value parts = convert(x, c10::toRealValueType(dtype));
    return complex(parts, constant_like(0, parts));
  }
  if (c10::isFloatingType(from)) {
    // Directly, XLA would saturate where PyTorch wraps around.
    if (dtype == at::kUInt32) return convert(convert(x, at::kLong), dtype);
    if (c10::isIntegralType(dtype, /*includeBool=*/false) && c10::elementSize(dtype) < 4) {
      return convert(convert(x, at::kInt), dtype);
    }
  }
  return op1("convert", {x}, {}, x.type.with(dtype));
}

Value Emitter::bitcast(const Value& x, const Type& type) {
  if (x.type == type) return x;
  TORCH_INTERNAL_ASSERT(x.type.nbytes() == type.nbytes() && std::abs(x.rank() - type.rank()) <= 1, "bitcast of ",
                        x.type, " to ", type);
  return op1("bitcast_convert", {x}, {}, type);
}

Value Emitter::complex(const Value& real, const Value& imag) {
  TORCH_INTERNAL_ASSERT(real.type == imag.type, "complex of ", real.type, " and ", imag.type);
  return op1("complex", {real, imag}, {}, real.type.with(c10::toComplexType(real.dtype())));
}

Value Emitter::real(const Value& x) { return c10::isComplexType(x.dtype()) ? unary("real", x) : x; }

Value Emitter::imag(const Value& x) { return c10::isComplexType(x.dtype()) ? unary("imag", x) : constant_like(0, x); }

// --- shape

Value Emitter::iota(const Type& type, int64_t dim) {
  TORCH_INTERNAL_ASSERT(0 <= dim && dim < type.rank(), "iota along ", dim, " of ", type);
  return op1("iota", {}, "iota_dimension = " + std::to_string(dim) + " : i64", type);
}

Value Emitter::reshape(const Value& x, c10::IntArrayRef dims) {
  const Type result = x.type.with(dims);
  if (result == x.type) return x;
  TORCH_INTERNAL_ASSERT(result.numel() == x.type.numel(), "reshape of ", x.type, " to ", result);
  return op1("reshape", {x}, {}, result);
}

Value Emitter::transpose(const Value& x, c10::IntArrayRef permutation) {
  TORCH_INTERNAL_ASSERT(static_cast<int64_t>(permutation.size()) == x.rank(), "transpose of ", x.type, " by ",
                        permutation);
  if (is_iota(permutation)) return x;
  Dims dims;
  for (const int64_t d : permutation) dims.push_back(x.dim(d));
  const Value out = op1("transpose", {x}, "permutation = " + array_attribute(permutation), x.type.with(dims));
  transposed_.emplace(out.id, std::pair(x, Dims(permutation.begin(), permutation.end())));
  return out;
}

const std::pair<Value, Dims>* Emitter::transposed(const Value& x) const {
  const auto found = transposed_.find(x.id);
  return found == transposed_.end() ? nullptr : &found->second;
}

Value Emitter::broadcast_in_dim(const Value& x, c10::IntArrayRef dims, c10::IntArrayRef where) {
  const Type result = x.type.with(dims);
  TORCH_INTERNAL_ASSERT(static_cast<int64_t>(where.size()) == x.rank(), "broadcast of ", x.type, " to ", result, " at ",
                        where);
  for (const auto i : c10::irange(where.size())) {
    TORCH_INTERNAL_ASSERT(
        0 <= where[i] && where[i] < result.rank() && (x.dims()[i] == 1 || x.dims()[i] == dims[where[i]]),
        "broadcast of ", x.type, " to ", result, " at ", where);
  }
  if (result == x.type && is_iota(where)) return x;
  return op1("broadcast_in_dim", {x}, "broadcast_dimensions = " + array_attribute(where), result);
}

Value Emitter::slice(const Value& x, c10::IntArrayRef start, c10::IntArrayRef limit, c10::IntArrayRef step) {
  const Dims steps = step.empty() ? filled(x.rank(), 1) : Dims(step.begin(), step.end());
  Dims dims;
  for (const auto i : c10::irange(x.rank())) {
    TORCH_INTERNAL_ASSERT(0 <= start[i] && start[i] <= limit[i] && limit[i] <= x.dim(i) && steps[i] > 0, "slice of ",
                          x.type, " from ", start, " to ", limit, " by ", c10::IntArrayRef(steps));
    dims.push_back((limit[i] - start[i] + steps[i] - 1) / steps[i]);
  }
  if (dims == x.dims()) return x;
  return op1("slice", {x},
             "limit_indices = " + array_attribute(limit) + ", start_indices = " + array_attribute(start) +
                 ", strides = " + array_attribute(steps),
             x.type.with(dims));
}

Value Emitter::pad(const Value& x, const Value& value, c10::IntArrayRef low, c10::IntArrayRef high,
                   c10::IntArrayRef interior) {
  TORCH_INTERNAL_ASSERT(value.type == Type(x.dtype(), {}), "pad of ", x.type, " with ", value.type);
  if (all_are(low, 0) && all_are(high, 0) && all_are(interior, 0)) return x;
  const Dims between = interior.empty() ? filled(x.rank(), 0) : Dims(interior.begin(), interior.end());
  Dims dims;
  for (const auto i : c10::irange(x.rank())) {
    dims.push_back(x.dim(i) + std::max<int64_t>(x.dim(i) - 1, 0) * between[i] + low[i] + high[i]);
    TORCH_INTERNAL_ASSERT(dims.back() >= 0, "pad of ", x.type, " by ", low, " and ", high);
  }
  return op1("pad", {x, value},
             "edge_padding_high = " + array_attribute(high) + ", edge_padding_low = " + array_attribute(low) +
                 ", interior_padding = " + array_attribute(between),
             x.type.with(dims));
}

Value Emitter::concatenate(const Values& xs, int64_t dim) {
  TORCH_INTERNAL_ASSERT(!xs.empty() && 0 <= dim && dim < xs[0].rank(), "concatenate along ", dim);
  if (xs.size() == 1) return xs[0];
  Type result = xs[0].type;
  result.dims[dim] = 0;
  for (const Value& x : xs) {
    Type rest = x.type;
    TORCH_INTERNAL_ASSERT(rest.rank() == result.rank(), "concatenate of ", xs[0].type, " and ", x.type);
    rest.dims[dim] = result.dims[dim];
    TORCH_INTERNAL_ASSERT(rest == result, "concatenate of ", xs[0].type, " and ", x.type, " along ", dim);
    result.dims[dim] += x.dim(dim);
  }
  return op1("concatenate", xs, "dimension = " + std::to_string(dim) + " : i64", result);
}

Value Emitter::reverse(const Value& x, c10::IntArrayRef dims) {
  if (dims.empty()) return x;
  return op1("reverse", {x}, "dimensions = " + array_attribute(dims), x.type);
}

Value Emitter::dynamic_slice(const Value& x, const Values& starts, c10::IntArrayRef sizes) {
  TORCH_INTERNAL_ASSERT(static_cast<int64_t>(starts.size()) == x.rank(), "dynamic_slice of ", x.type);
  Values operands = {x};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return op1("dynamic_slice", operands, "slice_sizes = " + array_attribute(sizes), x.type.with(sizes));
}

Value Emitter::dynamic_update_slice(const Value& x, const Value& update, const Values& starts) {
  TORCH_INTERNAL_ASSERT(
      static_cast<int64_t>(starts.size()) == x.rank() && update.rank() == x.rank() && update.dtype() == x.dtype(),
      "dynamic_update_slice of ", x.type, " with ", update.type);
  Values operands = {x, update};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return op1("dynamic_update_slice", operands, {}, x.type);
}

}  // namespace torch_tpu
