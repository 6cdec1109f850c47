// What a lowering sees of an ATen call: the operands as StableHLO values in the
// tensors' own (logical) shapes, and the other arguments by their schema names.
// Knows nothing of cells, views or policies.
//
// A number (an argument of type Scalar or float) is an operand of the program,
// so a changing learning rate never recompiles. *Observing is what makes a
// number structural*: scalar(), real() and equals() make the observed fact a part
// of the call's signature; number() does not.
#pragma once

#include <c10/core/Scalar.h>

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "stablehlo/emitter.h"

namespace torch_tpu {

// What lowerings observed of the numbers of one row: kept with the row, and
// only ever added to. By position of the argument in the schema.
struct Observations {
  struct OfArgument {
    bool value = false;             // the value itself
    std::vector<double> constants;  // only whether it equals one of these
  };
  std::vector<OfArgument> arguments;
  bool precision = false;  // torch.get_float32_matmul_precision()
  // True if this call to a see function added something.
  bool see_value(size_t argument);
  bool see_equals(size_t argument, double constant);
};

// A tensor operand. Also a 0-d CPU tensor, whose value is then a program operand like a number's.
struct TensorArgument {
  Value value;
  bool wrapped_number = false;  // a Python number in a tensor's place
  bool contiguous = true;       // as is_contiguous() of the tensor
};
// A Python number: its value now, and the 0-d f64 or i64 (complex: c128) program operand.
struct NumberArgument {
  at::Scalar value;
  Value operand;
};

using Argument = std::variant<std::monostate,                               // None, or an undefined tensor
                              TensorArgument, std::vector<TensorArgument>,  // undefined elements: !defined()
                              NumberArgument, std::vector<NumberArgument>, bool, int64_t, std::vector<int64_t>,
                              std::vector<bool>, std::string>;

// How a pointwise op chooses the dtype it computes in (torch's ELEMENTWISE_TYPE_PROMOTION_KIND).
enum class Promote {
  kDefault,         // the operands' common dtype
  kIntToFloat,      // as kDefault, integers and bool become the default dtype
  kComplexToFloat,  // kDefault for computing; the result is real (abs)
};

class Call {
 public:
  struct Context {
    at::ScalarType default_dtype = at::kFloat;
    Precision matmul_precision = Precision::kHighest;
    bool tpu = false;  // compiled for a TPU (also ahead of time), not for a host
  };

  Call(Emitter& emitter, std::vector<std::string> names, std::vector<Argument> arguments, std::vector<Type> results,
       Context context, Observations& observations, Value random_state);

  // An argument of the call that `element` makes.
  struct Passed {
    std::string name;  // there
    std::string from;  // the argument here; of a list, its i-th element. Empty: `constant`
    Argument constant;
  };
  // The call of a one-tensor row that a foreach row makes for its i-th tensors. What it observes
  // is observed of the arguments here. REQUIRES: the other row is not random().
  Call element(size_t i, const std::vector<Passed>& arguments, const Type& result) const;

  // --- tensors, by argument name
  bool has(std::string_view name) const;         // neither None nor undefined
  Value tensor(std::string_view name) const;     // REQUIRES: has(name)
  bool contiguous(std::string_view name) const;  // as Tensor.is_contiguous(). REQUIRES: has(name)
  Values tensors(std::string_view name) const;   // a TensorList; undefined entries stay undefined
  // `tensor` converted to common_dtype() of all tensors and numbers of the call, or of `among`.
  Value promoted(std::string_view name, Promote how = Promote::kDefault) const;
  // torch.result_type of the arguments named (all tensors and Scalars if none is named), which counts 0-d
  // and wrapped numbers as PyTorch does.
  at::ScalarType common_dtype(Promote how = Promote::kDefault, const std::vector<std::string_view>& among = {}) const;

  // --- numbers: operands, converted to `dtype`, 0-d
  Value number(std::string_view name, at::ScalarType dtype) const;
  // The same broadcast to `type`.
  Value number(std::string_view name, const Type& type) const;
  Values numbers(std::string_view name, at::ScalarType dtype) const;  // Scalar[] or float[]
  // --- numbers, observed
  bool equals(std::string_view name, double constant) const;
  at::Scalar scalar(std::string_view name) const;
  double real(std::string_view name) const;
  std::vector<double> reals(std::string_view name) const;
  bool is_number(std::string_view name) const;           // given, and a number rather than a tensor
  bool is_integral_number(std::string_view name) const;  // int or bool: the kind is always structural

  // --- structure
  bool flag(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  std::vector<int64_t> integers(std::string_view name) const;
  std::vector<bool> flags(std::string_view name) const;
  std::string text(std::string_view name) const;
  std::optional<at::ScalarType> dtype(std::string_view name) const;  // a ScalarType? argument
  int64_t integer_or(std::string_view name, int64_t otherwise) const;

  // --- results, as PyTorch's Meta kernel (or the row's shape function) states them.
  // For in-place and out= calls: the written tensors.
  const Type& result(size_t i = 0) const;
  size_t num_results() const { return results_.size(); }

  // --- environment
  const Context& context() const { return context_; }
  // Observed, like a number.
  Precision precision() const {
    observations_.precision = true;
    return context_.matmul_precision;
  }
  // Random bits that no other call of the process gets. REQUIRES: the row is random().
  // `dtype`: kUInt32 or kUInt64.
  Value random_bits(at::ScalarType dtype, c10::IntArrayRef dims) const;
  int64_t draws() const { return draws_; }  // counter steps used so far

  // Adds `-1 < dim < rank` handling: a negative dim counts from the end; 0-d counts as 1-d.
  static int64_t wrap(int64_t dim, int64_t rank);
  // All dims if the argument is None or (where `empty_means_all`) empty; wrapped, sorted.
  Dims dims(std::string_view name, int64_t rank, bool empty_means_all = true) const;

 private:
  size_t index(std::string_view name) const;
  std::optional<size_t> find(std::string_view name) const;
  const Argument& at(std::string_view name) const { return arguments_[index(name)]; }
  Value convert_number(const NumberArgument& number, at::ScalarType dtype) const;
  void see_value(std::string_view name) const;
  void see_equals(std::string_view name, double constant) const;

  Emitter& e_;
  std::vector<std::string> names_;
  std::vector<Argument> arguments_;
  std::vector<Type> results_;
  Context context_;
  Observations& observations_;
  std::vector<size_t> positions_;  // of the arguments, in observations_
  Value random_state_;             // tensor<2xui64>, or undefined
  mutable int64_t draws_ = 0;
};

}  // namespace torch_tpu
