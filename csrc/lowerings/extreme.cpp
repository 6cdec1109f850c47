// Reductions that choose an element: max, min, amax, amin, argmax, argmin.
// NaN wins over every number, and the first of equal elements over the others.
#include "lowerings/families.h"
#include "lowerings/reduction.h"

namespace torch_tpu {

namespace {

template <bool kLargest>
Value lower_extreme(Emitter& e, const Call& c) {
  const Value x = at_least_1d(e, c.tensor("self"));
  return as_result(e, c, extreme(e, x, reduced_dims(c, x), kLargest));
}

template <bool kLargest>
Values lower_extreme_with_index(Emitter& e, const Call& c) {
  const Value x = at_least_1d(e, c.tensor("self"));
  const auto [value, index] = extreme_with_index(e, x, reduced_dims(c, x), kLargest);
  return {as_result(e, c, value, 0), as_result(e, c, index, 1)};
}

template <bool kLargest>
Value lower_index_of_extreme(Emitter& e, const Call& c) {
  const Value x = at_least_1d(e, c.tensor("self"));
  return as_result(e, c, extreme_with_index(e, x, reduced_dims(c, x), kLargest).second);
}

Values lower_aminmax(Emitter& e, const Call& c) {
  const Value x = at_least_1d(e, c.tensor("self"));
  const Dims dims = reduced_dims(c, x);
  return {as_result(e, c, extreme(e, x, dims, /*largest=*/false), 0),
          as_result(e, c, extreme(e, x, dims, /*largest=*/true), 1)};
}

}  // namespace

void add_extreme(Table& t) {
  t.add("aten::max", lower_extreme<true>);
  t.add("aten::min", lower_extreme<false>);
  t.add("aten::amax", lower_extreme<true>);
  t.add("aten::amin", lower_extreme<false>);
  t.add("aten::max.dim", lower_extreme_with_index<true>);
  t.add("aten::min.dim", lower_extreme_with_index<false>);
  t.add("aten::argmax", lower_index_of_extreme<true>);
  t.add("aten::argmin", lower_index_of_extreme<false>);
  t.add("aten::aminmax", lower_aminmax);
}

}  // namespace torch_tpu
