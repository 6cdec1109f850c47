#include "lowerings/table.h"

#include <c10/util/Exception.h>

#include "lowerings/families.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

Row& Table::add(std::string_view name, Value (*lower)(Emitter&, const Call&)) {
  return add(name, Row::Lowering([lower](Emitter& e, const Call& c) { return Values{lower(e, c)}; }));
}

Row& Table::add(std::string_view name, Values (*lower)(Emitter&, const Call&)) {
  return add(name, Row::Lowering(lower));
}

Row& Table::add(std::string_view name, Row::Lowering lower) {
  Row& row = rows_.emplace_back();
  row.name = name;
  row.lower = std::move(lower);
  return row;
}

Row& Table::unary(std::string_view name, std::string_view op, Promote promote) {
  return add(name, Row::Lowering([op = std::string(op), promote](Emitter& e, const Call& c) {
               return Values{e.unary(op, c.promoted("self", promote))};
             }));
}

Row& Table::binary(std::string_view name, std::string_view op, Promote promote) {
  return add(name, Row::Lowering([op = std::string(op), promote](Emitter& e, const Call& c) {
               const auto [a, b] = broadcast(e, c.promoted("self", promote), c.promoted("other", promote));
               return Values{e.binary(op, a, b)};
             }));
}

Row& Table::comparison(std::string_view name, std::string_view direction) {
  return add(name, Row::Lowering([direction = std::string(direction)](Emitter& e, const Call& c) {
               const auto [a, b] = broadcast(e, c.promoted("self"), c.promoted("other"));
               return Values{e.compare(direction, a, b)};
             }));
}

const Row& Table::find(std::string_view name) const {
  for (const Row& row : rows_) {
    if (row.name == name) return row;
  }
  TORCH_INTERNAL_ASSERT(false, "no row ", name);
}

const Table& table() {
  static const Table kTable = [] {
    Table t;
    add_activation(t);
    add_activation_backward(t);
    add_adaptive_pool(t);
    add_attention(t);
    add_batch_norm(t);
    add_bessel(t);
    add_binary(t);
    add_bitwise(t);
    add_class_loss(t);
    add_convolution(t);
    add_ctc_loss(t);
    add_distance(t);
    add_embedding(t);
    add_extreme(t);
    add_factory(t);
    add_fft(t);
    add_fractional_pool(t);
    add_gamma(t);
    add_grid_sampler(t);
    add_grouped_matmul(t);
    add_index(t);
    add_linalg_cholesky(t);
    add_linalg_lu(t);
    add_linalg_qr(t);
    add_linalg_spectrum(t);
    add_loss(t);
    add_matmul(t);
    add_multi_head_attention(t);
    add_norm(t);
    add_optimizer(t);
    add_padding(t);
    add_polynomial(t);
    add_pool(t);
    add_power(t);
    add_random(t);
    add_random_distribution(t);
    add_random_gradient(t);
    add_recurrent(t);
    add_reduce(t);
    add_scan(t);
    add_scatter(t);
    add_search(t);
    add_shape(t);
    add_shape_backward(t);
    add_softmax(t);
    add_sort(t);
    add_special(t);
    add_ternary(t);
    add_unary(t);
    add_upsample(t);
    add_variance(t);
    add_foreach(t);  // made of the other families' rows
    return t;
  }();
  return kTable;
}

}  // namespace torch_tpu
