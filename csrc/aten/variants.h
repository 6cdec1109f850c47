// What the schemas say about the overloads of a row: which arguments are written, which
// overloads are the in-place and out= forms of a functional op, and of which kind each
// argument is. Computed once, at registration.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <vector>

#include "lowerings/table.h"

namespace torch_tpu {

enum class ArgumentKind : uint8_t {
  kTensor,
  kTensorList,
  kNumber,      // Scalar or float
  kNumberList,  // Scalar[] or float[]
  kInteger,     // int, ScalarType, MemoryFormat, Layout
  kBool,
  kIntegerList,
  kBoolList,
  kText,
  kGenerator,
  kIgnored,  // Device
};

// One overload of a row: the add.Tensor, add_.Tensor or add.out of the row aten::add.Tensor.
struct Variant {
  const Row* row = nullptr;
  std::string name;
  std::vector<std::string> argument_names;
  std::vector<ArgumentKind> kinds;
  std::vector<bool> read;       // by argument: false for out= tensors
  std::vector<size_t> written;  // arguments, in schema order
  // By return value: the argument that it is, or -1 for a fresh result.
  std::vector<int> returns;
  bool returns_list = false;  // one fresh Tensor[]
  bool is_out = false;        // has out= arguments
  // The functional form, for results when this overload has no Meta kernel.
  std::optional<c10::OperatorHandle> functional;
};

// The positions of the arguments `schema` writes to: none if it is functional,
// the first if it is in-place, those of out= otherwise.
std::vector<size_t> written_arguments(const c10::FunctionSchema& schema);

// Every overload that the row serves: the one it names, and for a functional one those
// in-place and out= overloads that take the same arguments. Empty if PyTorch has no such op.
std::vector<std::pair<c10::OperatorHandle, Variant>> variants_of(const Row& row);

}  // namespace torch_tpu
