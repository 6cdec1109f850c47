// Access to the arguments of a call. What a lowering asks of an argument that
// the schema cannot give is a mistake of the row: an internal error that names
// the argument and what it holds.
#include "lowerings/call.h"

#include <c10/util/Exception.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "stablehlo/random_block.h"

namespace torch_tpu {

namespace {

constexpr size_t kUnobserved = std::numeric_limits<size_t>::max();

// By the alternatives of Argument.
constexpr std::array<std::string_view, std::variant_size_v<Argument>> kKinds = {
    "None", "a tensor", "tensors", "a number", "numbers", "a bool", "an int", "ints", "bools", "a string"};

// The alternative `T` of an argument. `expected` is for the message.
template <typename T>
const T& get(const Argument& argument, std::string_view name, std::string_view expected) {
  const T* held = std::get_if<T>(&argument);
  TORCH_INTERNAL_ASSERT(held != nullptr, "argument `", name, "` holds ", kKinds[argument.index()],
                        "; its lowering expects ", expected);
  return *held;
}

// A number whose kind is part of the schema, or a Scalar.
std::optional<at::Scalar> find_scalar(const Argument& argument) {
  if (const auto* number = std::get_if<NumberArgument>(&argument)) return number->value;
  if (const auto* integer = std::get_if<int64_t>(&argument)) return at::Scalar(*integer);
  if (const auto* flag = std::get_if<bool>(&argument)) return at::Scalar(*flag);
  return std::nullopt;
}

at::ScalarType promote(at::ScalarType a, at::ScalarType b) {
  if (a == at::ScalarType::Undefined) return b;
  if (b == at::ScalarType::Undefined) return a;
  return c10::promoteTypes(a, b);
}

// A dtype of a more important category decides, unless the lesser one is of a higher kind.
at::ScalarType combine(at::ScalarType higher, at::ScalarType lower) {
  if (c10::isComplexType(higher)) return higher;
  if (c10::isFloatingType(higher)) return c10::isComplexType(lower) ? c10::toComplexType(higher) : higher;
  if (higher == at::kBool || c10::isFloatingType(lower) || c10::isComplexType(lower)) return promote(higher, lower);
  return higher == at::ScalarType::Undefined ? lower : higher;
}

// torch.result_type's three categories of operands.
struct ResultType {
  at::ScalarType default_dtype;
  at::ScalarType dimensioned = at::ScalarType::Undefined;
  at::ScalarType zero_dim = at::ScalarType::Undefined;
  at::ScalarType wrapped = at::ScalarType::Undefined;

  void add_wrapped(at::ScalarType dtype) {
    if (c10::isComplexType(dtype)) {
      dtype = default_dtype == at::kDouble ? at::kComplexDouble : at::kComplexFloat;
    } else if (c10::isFloatingType(dtype)) {
      dtype = default_dtype;
    }
    wrapped = promote(wrapped, dtype);
  }

  void add(const TensorArgument& tensor) {
    if (!tensor.value.defined()) return;
    at::ScalarType dtype = tensor.value.dtype();
    if (tensor.value.rank() > 0) {
      dimensioned = promote(dimensioned, dtype);
    } else if (tensor.wrapped_number) {
      add_wrapped(dtype);
    } else {
      zero_dim = promote(zero_dim, dtype);
    }
  }

  void add(const Argument& argument) {
    if (const auto* tensor = std::get_if<TensorArgument>(&argument)) {
      add(*tensor);
    } else if (const auto* tensors = std::get_if<std::vector<TensorArgument>>(&argument)) {
      for (const TensorArgument& one : *tensors) add(one);
    } else if (const auto* number = std::get_if<NumberArgument>(&argument)) {
      add_wrapped(number->value.type());
    } else if (const auto* numbers = std::get_if<std::vector<NumberArgument>>(&argument)) {
      for (const NumberArgument& one : *numbers) add_wrapped(one.value.type());
    }
  }

  at::ScalarType dtype() const { return combine(dimensioned, combine(zero_dim, wrapped)); }
};

}  // namespace

// --- observations

bool Observations::see_value(size_t argument) {
  if (arguments.size() <= argument) arguments.resize(argument + 1);
  return !std::exchange(arguments[argument].value, true);
}

bool Observations::see_equals(size_t argument, double constant) {
  if (arguments.size() <= argument) arguments.resize(argument + 1);
  std::vector<double>& seen = arguments[argument].constants;
  if (std::find(seen.begin(), seen.end(), constant) != seen.end()) return false;
  seen.push_back(constant);
  return true;
}

Call::Call(Emitter& emitter, std::vector<std::string> names, std::vector<Argument> arguments, std::vector<Type> results,
           Context context, Observations& observations, Value random_state)
    : e_(emitter),
      names_(std::move(names)),
      arguments_(std::move(arguments)),
      results_(std::move(results)),
      context_(context),
      observations_(observations),
      positions_(arguments_.size()),
      random_state_(std::move(random_state)) {
  TORCH_INTERNAL_ASSERT(names_.size() == arguments_.size());
  std::iota(positions_.begin(), positions_.end(), 0);
}

Call Call::element(size_t i, const std::vector<Passed>& arguments, const Type& result) const {
  std::vector<std::string> names;
  std::vector<Argument> elements;
  std::vector<size_t> positions;
  for (const Passed& passed : arguments) {
    names.push_back(passed.name);
    if (passed.from.empty()) {
      elements.push_back(passed.constant);
      positions.push_back(kUnobserved);
      continue;
    }
    const Argument& whole = at(passed.from);
    if (const auto* tensors = std::get_if<std::vector<TensorArgument>>(&whole)) {
      elements.emplace_back(tensors->at(i));
    } else if (const auto* numbers = std::get_if<std::vector<NumberArgument>>(&whole)) {
      elements.emplace_back(numbers->at(i));
    } else {
      elements.push_back(whole);
    }
    positions.push_back(positions_[index(passed.from)]);
  }
  Call call(e_, std::move(names), std::move(elements), {result}, context_, observations_, Value());
  call.positions_ = std::move(positions);
  return call;
}

void Call::see_value(std::string_view name) const {
  const size_t position = positions_[index(name)];
  if (position != kUnobserved) observations_.see_value(position);
}

void Call::see_equals(std::string_view name, double constant) const {
  const size_t position = positions_[index(name)];
  if (position != kUnobserved) observations_.see_equals(position, constant);
}

std::optional<size_t> Call::find(std::string_view name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end()) return std::nullopt;
  return static_cast<size_t>(found - names_.begin());
}

size_t Call::index(std::string_view name) const {
  const std::optional<size_t> found = find(name);
  TORCH_INTERNAL_ASSERT(found.has_value(), "no argument `", name, "`; the arguments are ", c10::Join(", ", names_));
  return *found;
}

// --- tensors

bool Call::has(std::string_view name) const {
  const std::optional<size_t> found = find(name);
  if (!found) return false;
  const Argument& argument = arguments_[*found];
  if (const auto* tensor = std::get_if<TensorArgument>(&argument)) return tensor->value.defined();
  return !std::holds_alternative<std::monostate>(argument);
}

Value Call::tensor(std::string_view name) const {
  const Value& value = get<TensorArgument>(at(name), name, "a tensor").value;
  TORCH_INTERNAL_ASSERT(value.defined(), "argument `", name, "` is undefined; its lowering expects a tensor");
  return value;
}

bool Call::contiguous(std::string_view name) const {
  return get<TensorArgument>(at(name), name, "a tensor").contiguous;
}

Values Call::tensors(std::string_view name) const {
  Values values;
  for (const TensorArgument& one : get<std::vector<TensorArgument>>(at(name), name, "tensors")) {
    values.push_back(one.value);
  }
  return values;
}

Value Call::promoted(std::string_view name, Promote how) const {
  const at::ScalarType dtype = common_dtype(how);
  return is_number(name) ? number(name, dtype) : e_.convert(tensor(name), dtype);
}

at::ScalarType Call::common_dtype(Promote how, const std::vector<std::string_view>& among) const {
  ResultType common{context_.default_dtype};
  if (among.empty()) {
    for (const Argument& argument : arguments_) common.add(argument);
  }
  for (const std::string_view name : among) common.add(at(name));
  const at::ScalarType dtype = common.dtype();
  const bool integral = c10::isIntegralType(dtype, /*includeBool=*/true);
  return how == Promote::kIntToFloat && integral ? context_.default_dtype : dtype;
}

// --- numbers

Value Call::convert_number(const NumberArgument& number, at::ScalarType dtype) const {
  return e_.convert(number.operand, dtype);
}

Value Call::number(std::string_view name, at::ScalarType dtype) const {
  const Argument& argument = at(name);
  if (const auto* tensor = std::get_if<TensorArgument>(&argument)) {
    return e_.convert(e_.reshape(tensor->value, {}), dtype);
  }
  if (!std::holds_alternative<NumberArgument>(argument)) {
    if (const auto structural = find_scalar(argument)) return e_.constant(*structural, Type(dtype, {}));
  }
  return convert_number(get<NumberArgument>(argument, name, "a number"), dtype);
}

Value Call::number(std::string_view name, const Type& type) const {
  return e_.broadcast_in_dim(number(name, type.dtype), type.dims, {});
}

Values Call::numbers(std::string_view name, at::ScalarType dtype) const {
  Values values;
  for (const NumberArgument& one : get<std::vector<NumberArgument>>(at(name), name, "numbers")) {
    values.push_back(convert_number(one, dtype));
  }
  return values;
}

bool Call::equals(std::string_view name, double constant) const {
  see_equals(name, constant);
  const std::optional<at::Scalar> value = find_scalar(at(name));
  TORCH_INTERNAL_ASSERT(value.has_value(), "argument `", name, "` holds ", kKinds[at(name).index()],
                        "; its lowering expects a number");
  return value->isComplex() ? value->equal(constant) : value->toDouble() == constant;
}

at::Scalar Call::scalar(std::string_view name) const {
  see_value(name);
  const std::optional<at::Scalar> value = find_scalar(at(name));
  TORCH_INTERNAL_ASSERT(value.has_value(), "argument `", name, "` holds ", kKinds[at(name).index()],
                        "; its lowering expects a number");
  return *value;
}

double Call::real(std::string_view name) const { return scalar(name).toDouble(); }

std::vector<double> Call::reals(std::string_view name) const {
  see_value(name);
  std::vector<double> values;
  for (const NumberArgument& one : get<std::vector<NumberArgument>>(at(name), name, "numbers")) {
    values.push_back(one.value.toDouble());
  }
  return values;
}

bool Call::is_number(std::string_view name) const {
  const std::optional<size_t> found = find(name);
  return found && std::holds_alternative<NumberArgument>(arguments_[*found]);
}

bool Call::is_integral_number(std::string_view name) const {
  const std::optional<size_t> found = find(name);
  const std::optional<at::Scalar> value = found ? find_scalar(arguments_[*found]) : std::nullopt;
  return value && value->isIntegral(/*includeBool=*/true);
}

// --- structure

bool Call::flag(std::string_view name) const { return get<bool>(at(name), name, "a bool"); }

int64_t Call::integer(std::string_view name) const { return get<int64_t>(at(name), name, "an int"); }

std::vector<int64_t> Call::integers(std::string_view name) const {
  return get<std::vector<int64_t>>(at(name), name, "ints");
}

std::vector<bool> Call::flags(std::string_view name) const { return get<std::vector<bool>>(at(name), name, "bools"); }

std::string Call::text(std::string_view name) const { return get<std::string>(at(name), name, "a string"); }

std::optional<at::ScalarType> Call::dtype(std::string_view name) const {
  if (!has(name)) return std::nullopt;
  return static_cast<at::ScalarType>(integer(name));
}

int64_t Call::integer_or(std::string_view name, int64_t otherwise) const {
  return has(name) ? integer(name) : otherwise;
}

int64_t Call::wrap(int64_t dim, int64_t rank) {
  const int64_t size = std::max<int64_t>(rank, 1);
  TORCH_CHECK_INDEX(-size <= dim && dim < size, "Dimension out of range (expected to be in range of [", -size, ", ",
                    size - 1, "], but got ", dim, ")");
  return dim < 0 ? dim + size : dim;
}

Dims Call::dims(std::string_view name, int64_t rank, bool empty_means_all) const {
  std::vector<int64_t> given;
  bool all = !has(name);
  if (!all) {
    const auto* one = std::get_if<int64_t>(&at(name));
    given = one != nullptr ? std::vector<int64_t>{*one} : integers(name);
    all = given.empty() && empty_means_all;
  }
  Dims dims;
  if (rank == 0) return dims;
  if (all) {
    for (const auto d : c10::irange(rank)) dims.push_back(d);
    return dims;
  }
  for (const int64_t d : given) dims.push_back(wrap(d, rank));
  std::sort(dims.begin(), dims.end());
  return dims;
}

// --- results and environment

const Type& Call::result(size_t i) const {
  TORCH_INTERNAL_ASSERT(i < results_.size(), "result ", i, " of ", results_.size());
  return results_[i];
}

Value Call::random_bits(at::ScalarType dtype, c10::IntArrayRef dims) const {
  TORCH_INTERNAL_ASSERT(random_state_.defined(), "the row is not marked draws_random()");
  TORCH_INTERNAL_ASSERT(dtype == at::kUInt32 || dtype == at::kUInt64);
  const Type type(dtype, dims);
  const Value state = draws_ == 0 ? random_state_ : e_.add(random_state_, e_.list({0, draws_}, at::kUInt64));
  // A step of the counter gives 64 bits; 32-bit draws use half of what is reserved here.
  draws_ += std::max<int64_t>(random_block(type).numel(), 1);
  return e_.random_bits(state, type);
}

}  // namespace torch_tpu
