#include "stablehlo/type.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <sstream>

namespace torch_tpu {

namespace {

// Empty for a dtype that StableHLO has no element type for.
std::string_view find_element_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::kBool:
      return "i1";
    case at::kChar:
      return "i8";
    case at::kByte:
      return "ui8";
    case at::kShort:
      return "i16";
    case at::kUInt16:
      return "ui16";
    case at::kInt:
      return "i32";
    case at::kUInt32:
      return "ui32";
    case at::kLong:
      return "i64";
    case at::kUInt64:
      return "ui64";
    case at::kHalf:
      return "f16";
    case at::kBFloat16:
      return "bf16";
    case at::kFloat:
      return "f32";
    case at::kDouble:
      return "f64";
    case at::kComplexFloat:
      return "complex<f32>";
    case at::kComplexDouble:
      return "complex<f64>";
    case at::kFloat8_e5m2:
      return "f8E5M2";
    case at::kFloat8_e4m3fn:
      return "f8E4M3FN";
    case at::kFloat8_e5m2fnuz:
      return "f8E5M2FNUZ";
    case at::kFloat8_e4m3fnuz:
      return "f8E4M3FNUZ";
    default:
      return {};
  }
}

}  // namespace

int64_t Type::numel() const {
  int64_t n = 1;
  for (const int64_t d : dims) n *= d;
  return n;
}

bool has_element_name(at::ScalarType dtype) { return !find_element_name(dtype).empty(); }

std::string_view element_name(at::ScalarType dtype) {
  const std::string_view name = find_element_name(dtype);
  TORCH_CHECK_NOT_IMPLEMENTED(!name.empty(), "tpu: no StableHLO element type for ", dtype,
                              ".\nConvert the tensor to another dtype first.");
  return name;
}

std::ostream& operator<<(std::ostream& out, const Type& type) {
  out << "tensor<";
  for (const int64_t d : type.dims) out << d << 'x';
  return out << element_name(type.dtype) << '>';
}

std::string to_string(const Type& type) {
  std::ostringstream out;
  out << type;
  return out.str();
}

Dims row_major_strides(c10::IntArrayRef dims) {
  Dims strides(dims.size());
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(dims[i], 1);  // as everywhere in PyTorch
  }
  return strides;
}

}  // namespace torch_tpu
