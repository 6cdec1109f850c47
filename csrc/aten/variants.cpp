#include "aten/variants.h"

#include <c10/util/irange.h>

#include <algorithm>
#include <unordered_map>

namespace torch_tpu {

namespace {

using c10::Argument;
using c10::FunctionSchema;
using c10::TypeKind;

c10::TypePtr without_optional(const c10::TypePtr& type) {
  return type->kind() == TypeKind::OptionalType ? type->castRaw<c10::OptionalType>()->getElementType() : type;
}

ArgumentKind kind_of(const Argument& argument) {
  // real_type() tells ScalarType and friends from plain ints, which are handled alike.
  const c10::TypePtr type = without_optional(argument.type());
  switch (type->kind()) {
    case TypeKind::TensorType:
      return ArgumentKind::kTensor;
    case TypeKind::NumberType:
    case TypeKind::FloatType:
      return ArgumentKind::kNumber;
    case TypeKind::BoolType:
      return ArgumentKind::kBool;
    case TypeKind::StringType:
      return ArgumentKind::kText;
    case TypeKind::GeneratorType:
      return ArgumentKind::kGenerator;
    case TypeKind::ListType: {
      switch (without_optional(type->castRaw<c10::ListType>()->getElementType())->kind()) {
        case TypeKind::TensorType:
          return ArgumentKind::kTensorList;
        case TypeKind::NumberType:
        case TypeKind::FloatType:
          return ArgumentKind::kNumberList;
        case TypeKind::BoolType:
          return ArgumentKind::kBoolList;
        default:
          return ArgumentKind::kIntegerList;
      }
    }
    case TypeKind::DeviceObjType:
      return ArgumentKind::kIgnored;
    default:
      return ArgumentKind::kInteger;
  }
}

bool is_written(const Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

bool same_argument(const Argument& a, const Argument& b) { return a.name() == b.name() && *a.type() == *b.type(); }

// The arguments of `schema` that are not out= tensors.
std::vector<const Argument*> inputs_of(const FunctionSchema& schema) {
  std::vector<const Argument*> inputs;
  for (const Argument& a : schema.arguments()) {
    if (!(is_written(a) && a.kwarg_only())) inputs.push_back(&a);
  }
  return inputs;
}

bool same_inputs(const FunctionSchema& a, const FunctionSchema& b) {
  const auto x = inputs_of(a), y = inputs_of(b);
  return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                    [](const Argument* p, const Argument* q) { return same_argument(*p, *q); });
}

const std::unordered_map<std::string, std::vector<c10::OperatorName>>& overloads_by_name() {
  static const auto* overloads = [] {
    auto* map = new std::unordered_map<std::string, std::vector<c10::OperatorName>>();
    for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
      if (name.name.rfind("aten::", 0) == 0) (*map)[name.name].push_back(name);
    }
    return map;
  }();
  return *overloads;
}

Variant make_variant(const Row& row, const FunctionSchema& schema) {
  Variant variant;
  variant.row = &row;
  variant.name =
      schema.operator_name().overload_name.empty() ? schema.name() : schema.name() + '.' + schema.overload_name();
  variant.written = written_arguments(schema);
  for (const auto i : c10::irange(schema.arguments().size())) {
    const Argument& argument = schema.arguments()[i];
    variant.argument_names.push_back(argument.name());
    variant.kinds.push_back(kind_of(argument));
    const bool out = is_written(argument) && argument.kwarg_only();
    variant.read.push_back(!out);
    variant.is_out |= out;
    if (std::find(row.writes.begin(), row.writes.end(), argument.name()) != row.writes.end()) {
      variant.written.push_back(i);
    }
  }
  for (const Argument& result : schema.returns()) {
    variant.returns_list |= result.type()->kind() == TypeKind::ListType;
    int from = -1;
    if (result.alias_info() != nullptr) {
      for (const auto i : c10::irange(schema.arguments().size())) {
        const auto* alias = schema.arguments()[i].alias_info();
        if (alias != nullptr && alias->beforeSets() == result.alias_info()->beforeSets()) from = static_cast<int>(i);
      }
    }
    variant.returns.push_back(from);
  }
  return variant;
}

}  // namespace

std::vector<size_t> written_arguments(const FunctionSchema& schema) {
  std::vector<size_t> written;
  for (const auto i : c10::irange(schema.arguments().size())) {
    if (is_written(schema.arguments()[i])) written.push_back(i);
  }
  return written;
}

std::vector<std::pair<c10::OperatorHandle, Variant>> variants_of(const Row& row) {
  auto& dispatcher = c10::Dispatcher::singleton();
  const size_t dot = row.name.find('.');
  const std::string base = row.name.substr(0, dot);
  const std::string overload = dot == std::string::npos ? "" : row.name.substr(dot + 1);
  const auto handle = dispatcher.findSchema({base, overload});
  std::vector<std::pair<c10::OperatorHandle, Variant>> found;
  if (!handle) return found;
  const FunctionSchema& schema = handle->schema();
  found.emplace_back(*handle, make_variant(row, schema));
  if (!written_arguments(schema).empty()) return found;
  const auto& overloads = overloads_by_name();
  for (const std::string& name : {base, base + '_'}) {
    const auto it = overloads.find(name);
    if (it == overloads.end()) continue;
    for (const c10::OperatorName& sibling : it->second) {
      const auto other = dispatcher.findSchema(sibling);
      if (!other || written_arguments(other->schema()).empty() || !same_inputs(schema, other->schema())) continue;
      found.emplace_back(*other, make_variant(row, other->schema()));
      found.back().second.functional = handle;
    }
  }
  return found;
}

}  // namespace torch_tpu
