#include "lowerings/table.h"

#include <c10/util/Exception.h>

#include "lowerings/families.h"
#include "lowerings/foreign.h"
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
  row.family = family_;
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

void Table::family(std::string_view name, void (*add)(Table&)) {
  family_ = name;
  add(*this);
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
    t.family("activation", add_activation);
    t.family("activation_backward", add_activation_backward);
    t.family("adaptive_pool", add_adaptive_pool);
    t.family("attention", add_attention);
    t.family("batch_norm", add_batch_norm);
    t.family("bessel", add_bessel);
    t.family("binary", add_binary);
    t.family("bitwise", add_bitwise);
    t.family("class_loss", add_class_loss);
    t.family("convolution", add_convolution);
    t.family("ctc_loss", add_ctc_loss);
    t.family("distance", add_distance);
    t.family("embedding", add_embedding);
    t.family("extreme", add_extreme);
    t.family("factory", add_factory);
    t.family("fft", add_fft);
    t.family("fractional_pool", add_fractional_pool);
    t.family("gamma", add_gamma);
    t.family("grid_sampler", add_grid_sampler);
    t.family("grouped_matmul", add_grouped_matmul);
    t.family("index", add_index);
    t.family("linalg_cholesky", add_linalg_cholesky);
    t.family("linalg_lu", add_linalg_lu);
    t.family("linalg_qr", add_linalg_qr);
    t.family("linalg_spectrum", add_linalg_spectrum);
    t.family("loss", add_loss);
    t.family("matmul", add_matmul);
    t.family("multi_head_attention", add_multi_head_attention);
    t.family("norm", add_norm);
    t.family("optimizer", add_optimizer);
    t.family("padding", add_padding);
    t.family("polynomial", add_polynomial);
    t.family("pool", add_pool);
    t.family("power", add_power);
    t.family("random", add_random);
    t.family("random_distribution", add_random_distribution);
    t.family("random_gradient", add_random_gradient);
    t.family("recurrent", add_recurrent);
    t.family("reduce", add_reduce);
    t.family("scan", add_scan);
    t.family("scatter", add_scatter);
    t.family("search", add_search);
    t.family("segment_reduce", add_segment_reduce);
    t.family("shape", add_shape);
    t.family("shape_backward", add_shape_backward);
    t.family("softmax", add_softmax);
    t.family("sort", add_sort);
    t.family("special", add_special);
    t.family("ternary", add_ternary);
    t.family("unary", add_unary);
    t.family("upsample", add_upsample);
    t.family("variance", add_variance);
    t.family("foreign", add_foreign);
    t.family("foreach", add_foreach);  // made of the other families' rows
    return t;
  }();
  return kTable;
}

}  // namespace torch_tpu
