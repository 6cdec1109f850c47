// Types of StableHLO values: an ATen element type and static dimensions.
// Knows nothing of strides: a device value is always dense and row-major.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace torch_tpu {

using Dims = c10::SmallVector<int64_t, 6>;

struct Type {
  at::ScalarType dtype = at::kFloat;
  Dims dims;

  Type() = default;
  Type(at::ScalarType dtype, c10::IntArrayRef dims) : dtype(dtype), dims(dims.begin(), dims.end()) {}

  int64_t rank() const { return static_cast<int64_t>(dims.size()); }
  int64_t numel() const;
  // Bytes of the dense value; a bool takes one byte.
  int64_t nbytes() const { return numel() * static_cast<int64_t>(c10::elementSize(dtype)); }
  Type with(at::ScalarType other) const { return Type(other, dims); }
  Type with(c10::IntArrayRef other) const { return Type(dtype, other); }

  bool operator==(const Type& other) const { return dtype == other.dtype && dims == other.dims; }
  bool operator!=(const Type& other) const { return !(*this == other); }
};

// `f32`, `i1`, `complex<f64>`: the name of an element type in StableHLO.
// Throws NotImplementedError for a dtype that StableHLO cannot hold.
std::string_view element_name(at::ScalarType dtype);

// True if element_name() answers for `dtype`.
bool has_element_name(at::ScalarType dtype);

// `tensor<2x3xf32>`.
std::ostream& operator<<(std::ostream& out, const Type& type);
std::string to_string(const Type& type);

// The strides of a dense row-major array of `dims`.
Dims row_major_strides(c10::IntArrayRef dims);

}  // namespace torch_tpu
