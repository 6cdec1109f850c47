// Constants of the emitter: the text of numbers, exact in every element type.
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>
#include <c10/util/irange.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

#include "stablehlo/emitter.h"

namespace torch_tpu {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// `0x7FC0`: the bits of a floating value, which MLIR takes in a number's place.
template <typename Bits>
std::string hex(Bits bits) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string text = "0x";
  for (int shift = static_cast<int>(sizeof(Bits)) * 8 - 4; shift >= 0; shift -= 4) {
    text += kDigits[(bits >> shift) & 0xF];
  }
  return text;
}

// `1.0`, `2.5e-05`: the shortest decimal that reads back as `value`, with the point that MLIR asks for.
template <typename T>
std::string decimal(T value) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  std::string text(buffer, end);
  if (text.find('.') == std::string::npos) {
    const size_t exponent = text.find('e');
    text.insert(exponent == std::string::npos ? text.size() : exponent, ".0");
  }
  return text;
}

std::string float_text(float value) {
  std::string text = decimal(value);
  // MLIR reads the decimal as a double, then rounds again.
  double read = 0;
  std::from_chars(text.data(), text.data() + text.size(), read);
  return static_cast<float>(read) == value ? text : hex(std::bit_cast<uint32_t>(value));
}

// For the element types that a c10 class holds in `x`.
template <typename T>
std::string narrow_float_text(double value) {
  const T rounded(static_cast<float>(value));
  const float back = rounded;
  return std::isfinite(back) ? float_text(back) : hex(rounded.x);
}

std::string floating_text(double value, at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return std::isfinite(value) ? decimal(value) : hex(std::bit_cast<uint64_t>(value));
    case at::kFloat: {
      const float rounded = static_cast<float>(value);
      return std::isfinite(rounded) ? float_text(rounded) : hex(std::bit_cast<uint32_t>(rounded));
    }
    case at::kHalf:
      return narrow_float_text<c10::Half>(value);
    case at::kBFloat16:
      return narrow_float_text<c10::BFloat16>(value);
    case at::kFloat8_e5m2:
      return narrow_float_text<c10::Float8_e5m2>(value);
    case at::kFloat8_e4m3fn:
      return narrow_float_text<c10::Float8_e4m3fn>(value);
    case at::kFloat8_e5m2fnuz:
      return narrow_float_text<c10::Float8_e5m2fnuz>(value);
    case at::kFloat8_e4m3fnuz:
      return narrow_float_text<c10::Float8_e4m3fnuz>(value);
    default:
      TORCH_INTERNAL_ASSERT(false, "no floating constant of ", dtype);
  }
}

uint64_t integer_bits(const at::Scalar& value) {
  if (value.type() == at::kUInt64) return value.toUInt64();
  if (!value.isFloatingPoint()) return static_cast<uint64_t>(value.toLong());
  const double number = value.toDouble();
  return number < 0 ? static_cast<uint64_t>(static_cast<int64_t>(number)) : static_cast<uint64_t>(number);
}

// Wraps around, as C's conversions do.
std::string integer_text(const at::Scalar& value, at::ScalarType dtype) {
  const uint64_t bits = integer_bits(value);
  switch (dtype) {
    case at::kByte:
      return std::to_string(static_cast<uint8_t>(bits));
    case at::kChar:
      return std::to_string(static_cast<int8_t>(bits));
    case at::kShort:
      return std::to_string(static_cast<int16_t>(bits));
    case at::kInt:
      return std::to_string(static_cast<int32_t>(bits));
    case at::kLong:
      return std::to_string(static_cast<int64_t>(bits));
    case at::kUInt16:
      return std::to_string(static_cast<uint16_t>(bits));
    case at::kUInt32:
      return std::to_string(static_cast<uint32_t>(bits));
    case at::kUInt64:
      return std::to_string(bits);
    default:
      TORCH_INTERNAL_ASSERT(false, "no integer constant of ", dtype);
  }
}

std::string number_text(const at::Scalar& value, at::ScalarType dtype) {
  if (dtype == at::kBool) {
    const bool truth = value.isComplex() ? value.toComplexDouble() != c10::complex<double>(0) : value.toDouble() != 0;
    return truth ? "true" : "false";
  }
  if (c10::isComplexType(dtype)) {
    const auto number = value.toComplexDouble();
    const at::ScalarType part = c10::toRealValueType(dtype);
    return "(" + floating_text(number.real(), part) + ", " + floating_text(number.imag(), part) + ")";
  }
  if (c10::isFloatingType(dtype)) return floating_text(value.toDouble(), dtype);
  return integer_text(value, dtype);
}

template <typename T>
std::string list_text(c10::ArrayRef<T> values, at::ScalarType dtype) {
  if (values.empty()) return {};
  std::string text = "[";
  for (const auto i : c10::irange(values.size())) {
    if (i != 0) text += ", ";
    text += number_text(values[i], dtype);
  }
  return text + "]";
}

std::string dense(const std::string& elements, const Type& type) {
  return "value = dense<" + elements + "> : " + to_string(type);
}

template <typename T>
at::Scalar limit(bool highest) {
  return at::Scalar(highest ? std::numeric_limits<T>::max() : std::numeric_limits<T>::lowest());
}

at::Scalar extreme(at::ScalarType dtype, bool highest) {
  switch (dtype) {
    case at::kBool:
      return highest;
    case at::kByte:
      return limit<uint8_t>(highest);
    case at::kChar:
      return limit<int8_t>(highest);
    case at::kShort:
      return limit<int16_t>(highest);
    case at::kInt:
      return limit<int32_t>(highest);
    case at::kLong:
      return limit<int64_t>(highest);
    case at::kUInt16:
      return limit<uint16_t>(highest);
    case at::kUInt32:
      return limit<uint32_t>(highest);
    case at::kUInt64:
      return limit<uint64_t>(highest);
    // These have no infinity.
    case at::kFloat8_e4m3fn:
      return highest ? 448.0 : -448.0;
    case at::kFloat8_e4m3fnuz:
      return highest ? 240.0 : -240.0;
    case at::kFloat8_e5m2fnuz:
      return highest ? 57344.0 : -57344.0;
    default:
      TORCH_INTERNAL_ASSERT(c10::isFloatingType(dtype), "no order on ", dtype);
      return highest ? kInfinity : -kInfinity;
  }
}

}  // namespace

Value Emitter::constant(const at::Scalar& value, const Type& type) {
  const Type element(type.dtype, {});
  const Value single = op1("constant", {}, dense(number_text(value, type.dtype), element), element);
  return broadcast_in_dim(single, type.dims, {});
}

Value Emitter::lowest(const Type& type) { return constant(extreme(type.dtype, false), Type(type.dtype, {})); }

Value Emitter::highest(const Type& type) { return constant(extreme(type.dtype, true), Type(type.dtype, {})); }

Value Emitter::list(c10::ArrayRef<int64_t> values, at::ScalarType dtype) {
  const Type type(dtype, {static_cast<int64_t>(values.size())});
  return op1("constant", {}, dense(list_text(values, dtype), type), type);
}

Value Emitter::list(c10::ArrayRef<double> values, at::ScalarType dtype) {
  const Type type(dtype, {static_cast<int64_t>(values.size())});
  return op1("constant", {}, dense(list_text(values, dtype), type), type);
}

}  // namespace torch_tpu
