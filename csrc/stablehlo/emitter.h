// Writes the body of one StableHLO function as text, in MLIR's generic form.
// One method, one operation; a value carries its type, so nothing is inferred
// twice. Compositions of several operations are in stablehlo/compose.h.
// Knows nothing of ATen. Not thread-safe.
#pragma once

#include <c10/core/Scalar.h>
#include <c10/util/ArrayRef.h>

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "stablehlo/type.h"

namespace torch_tpu {

// An SSA value. A default-constructed one is undefined (ATen's undefined tensor).
struct Value {
  int id = -1;
  Type type;

  bool defined() const { return id >= 0; }
  at::ScalarType dtype() const { return type.dtype; }
  const Dims& dims() const { return type.dims; }
  int64_t dim(int64_t i) const { return type.dims[i]; }
  int64_t rank() const { return type.rank(); }
};

using Values = std::vector<Value>;
// The body of a region: block arguments in, returned values out.
using Region = std::function<Values(const Values&)>;

struct DotDims {
  Dims lhs_batch, rhs_batch, lhs_contract, rhs_contract;
};

// Dimension numbers are StableHLO's; unset lists mean none.
struct GatherDims {
  Dims offset_dims, collapsed_slice_dims, start_index_map, slice_sizes;
  Dims operand_batching_dims, start_indices_batching_dims;
  int64_t index_vector_dim = 0;
  bool sorted = false;
};
struct ScatterDims {
  Dims update_window_dims, inserted_window_dims, scatter_dims_to_operand_dims;
  Dims input_batching_dims, scatter_indices_batching_dims;
  int64_t index_vector_dim = 0;
  bool sorted = false;
  bool unique = false;
};
// A window over every dimension of the operand. Unset lists mean ones (zeros for padding).
struct Window {
  Dims sizes, strides, base_dilations, window_dilations, low, high;
};
// Layouts are NC + spatial for the input and result, OI + spatial for the kernel
// unless `dims` (StableHLO's `[b, f, 0]x[o, i, 0]->[b, f, 0]`) says otherwise.
struct Convolution {
  Dims strides, low, high, lhs_dilation, rhs_dilation;
  bool reverse_kernel = false;
  int64_t feature_groups = 1;
  int64_t batch_groups = 1;
  std::string dims;
};

// Precision of a dot or convolution on float32 operands.
enum class Precision { kDefault, kHigh, kHighest };

class Emitter {
 public:
  // Whether the program is for XLA's CPU compiler: where that prefers another form than a TPU does.
  void set_on_host(bool on_host) { on_host_ = on_host; }
  bool on_host() const { return on_host_; }

  // Declares the next argument of the function.
  Value input(const Type& type);
  // The whole `func.func`, with `results` returned. Ends the emitter's use.
  // argument_attributes: by argument, an attribute list without braces, or empty; none at all if left out.
  std::string finish(std::string_view name, const Values& results, bool is_public = false,
                     const std::vector<std::string>& argument_attributes = {});

  // Any operation: operands, an attribute list (without braces), regions and the result types.
  Values op(std::string_view name, const Values& operands, std::string_view attributes,
            const std::vector<Type>& results, const std::vector<std::string>& regions = {});
  Value op1(std::string_view name, const Values& operands, std::string_view attributes, const Type& result,
            const std::vector<std::string>& regions = {});
  // Text of a region whose block takes `arguments`; hand it to op().
  std::string region(const std::vector<Type>& arguments, const Region& body);

  // --- constants
  // `value` in every element. REQUIRES: `value` fits `type.dtype`.
  Value constant(const at::Scalar& value, const Type& type);
  Value constant_like(const at::Scalar& value, const Value& like) { return constant(value, like.type); }
  // 0-d, of type.dtype: the identities of maximum and minimum (-inf/inf for floating types).
  Value lowest(const Type& type);
  Value highest(const Type& type);
  // A one-dimensional integer constant.
  Value list(c10::ArrayRef<int64_t> values, at::ScalarType dtype = at::kLong);
  Value list(std::initializer_list<int64_t> values, at::ScalarType dtype = at::kLong) {
    return list(c10::ArrayRef<int64_t>(values), dtype);
  }
  Value list(c10::ArrayRef<double> values, at::ScalarType dtype);
  Value iota(const Type& type, int64_t dim);

  // --- elementwise; both operands have the same type
  // `name` is StableHLO's ("tanh") or, with its dialect, CHLO's ("chlo.erf").
  Value unary(std::string_view name, const Value& x);
  Value binary(std::string_view name, const Value& a, const Value& b);
  // With a number: a splat of it in a's type.
  Value binary(std::string_view name, const Value& a, const at::Scalar& b) {
    return binary(name, a, constant(b, a.type));
  }
#define TORCH_TPU_BINARY(method, op)                                             \
  Value method(const Value& a, const Value& b) { return binary(op, a, b); }      \
  Value method(const Value& a, const at::Scalar& b) { return binary(op, a, b); } \
  Value method(const at::Scalar& a, const Value& b) { return binary(op, constant(a, b.type), b); }
  TORCH_TPU_BINARY(add, "add")
  TORCH_TPU_BINARY(subtract, "subtract")
  TORCH_TPU_BINARY(multiply, "multiply")
  TORCH_TPU_BINARY(divide, "divide")        // integers: towards zero
  TORCH_TPU_BINARY(remainder, "remainder")  // C's: sign of the dividend
  TORCH_TPU_BINARY(maximum, "maximum")      // NaN wins
  TORCH_TPU_BINARY(minimum, "minimum")
  TORCH_TPU_BINARY(power, "power")
  TORCH_TPU_BINARY(logical_and, "and")  // bitwise on integers
  TORCH_TPU_BINARY(logical_or, "or")
  TORCH_TPU_BINARY(logical_xor, "xor")
#undef TORCH_TPU_BINARY
  Value negate(const Value& x) { return unary("negate", x); }
  Value logical_not(const Value& x) { return unary("not", x); }
  // `direction`: EQ NE LT LE GT GE. Result is bool. Floats: IEEE, unless `total_order`.
  Value compare(std::string_view direction, const Value& a, const Value& b, bool total_order = false);
  Value compare(std::string_view direction, const Value& a, const at::Scalar& b) {
    return compare(direction, a, constant(b, a.type));
  }
  Value select(const Value& pred, const Value& on_true, const Value& on_false);
  Value clamp(const Value& low, const Value& x, const Value& high);
  // PyTorch's conversion: to bool is `!= 0`, complex to real drops the imaginary part.
  Value convert(const Value& x, at::ScalarType dtype);
  // Same bits. Between sizes, the last dimension appears or goes, as in StableHLO.
  Value bitcast(const Value& x, const Type& type);
  Value complex(const Value& real, const Value& imag);
  Value real(const Value& x);
  Value imag(const Value& x);

  // --- shape
  Value reshape(const Value& x, c10::IntArrayRef dims);
  // result dim i is x's dim permutation[i], as Tensor.permute.
  Value transpose(const Value& x, c10::IntArrayRef permutation);
  // The operand and the permutation of the transpose() that made x; null if none did.
  const std::pair<Value, Dims>* transposed(const Value& x) const;
  // x's dim i becomes the result's dim `where[i]`.
  Value broadcast_in_dim(const Value& x, c10::IntArrayRef dims, c10::IntArrayRef where);
  Value slice(const Value& x, c10::IntArrayRef start, c10::IntArrayRef limit, c10::IntArrayRef step = {});
  // Negative padding trims. `value` is 0-d.
  Value pad(const Value& x, const Value& value, c10::IntArrayRef low, c10::IntArrayRef high,
            c10::IntArrayRef interior = {});
  Value concatenate(const Values& xs, int64_t dim);
  Value reverse(const Value& x, c10::IntArrayRef dims);
  // `starts`: one 0-d integer a dimension, clamped as StableHLO does.
  Value dynamic_slice(const Value& x, const Values& starts, c10::IntArrayRef sizes);
  Value dynamic_update_slice(const Value& x, const Value& update, const Values& starts);

  // --- reductions: `dims` disappear. inits are 0-d.
  // The body gets accumulators, then elements; it returns new accumulators.
  Values reduce(const Values& xs, const Values& inits, c10::IntArrayRef dims, const Region& body);
  // One operand with a binary operation: reduce(x, 0, {1}, "add").
  Value reduce(const Value& x, const at::Scalar& init, c10::IntArrayRef dims, std::string_view name);
  Value reduce(const Value& x, const Value& init, c10::IntArrayRef dims, std::string_view name);
  Values reduce_window(const Values& xs, const Values& inits, const Window& window, const Region& body);
  Value reduce_window(const Value& x, const Value& init, const Window& window, std::string_view name);
  // Gradient of a window selection: `selects(a, b)` is true where a stays; sums with add.
  Value select_and_scatter(const Value& x, const Value& source, const Value& init, const Window& window,
                           std::string_view selects);

  // --- index
  Value gather(const Value& x, const Value& indices, const GatherDims& dims);
  // The body combines the old value and the update (0-d); null: the update replaces it.
  Value scatter(const Value& x, const Value& indices, const Value& updates, const ScatterDims& dims,
                const Region& body = nullptr);
  // Scatter with a binary operation ("add", "maximum", ...).
  Value scatter(const Value& x, const Value& indices, const Value& updates, const ScatterDims& dims,
                std::string_view name);
  // The comparator gets (a0, b0, a1, b1, ...) and returns whether a comes first.
  Values sort(const Values& xs, int64_t dim, bool stable, const Region& comparator);

  // --- contractions. Result dims: batch, lhs free, rhs free.
  Value dot_general(const Value& a, const Value& b, const DotDims& dims, at::ScalarType result,
                    Precision precision = Precision::kHighest);
  Value convolution(const Value& x, const Value& kernel, const Convolution& how, const Type& result,
                    Precision precision = Precision::kHighest);

  // --- control flow
  Values while_loop(const Values& init, const Region& condition, const Region& body);
  Values if_else(const Value& pred, const std::function<Values()>& on_true, const std::function<Values()>& on_false);

  // --- others
  // THREE_FRY; `state` is tensor<2xui64> (key, counter).
  Value random_bits(const Value& state, const Type& type);
  // kind: FFT IFFT RFFT IRFFT, over the last lengths.size() dimensions.
  Value fft(const Value& x, std::string_view kind, c10::IntArrayRef lengths);
  Value cholesky(const Value& x, bool lower);
  // transpose: NO_TRANSPOSE TRANSPOSE ADJOINT.
  Value triangular_solve(const Value& a, const Value& b, bool left_side, bool lower, bool unit_diagonal,
                         std::string_view transpose);
  Values custom_call(std::string_view target, const Values& operands, const std::vector<Type>& results,
                     std::string_view attributes = {});
  Value optimization_barrier(const Value& x);

 private:
  bool on_host_ = false;
  Value fresh(const Type& type) { return Value{next_id_++, type}; }

  int next_id_ = 0;
  Values inputs_;
  std::unordered_map<int, std::pair<Value, Dims>> transposed_;  // by the result's id
  std::string body_;
};

// `array<i64: 1, 2>` and `[1, 2]`: attribute texts.
std::string array_attribute(c10::IntArrayRef values);
std::string list_attribute(c10::IntArrayRef values);

}  // namespace torch_tpu
