// Every family of lowerings: one function a file, which adds the family's rows.
#pragma once

#include "lowerings/table.h"

namespace torch_tpu {

void add_activation(Table& t);
void add_activation_backward(Table& t);
void add_adaptive_pool(Table& t);
void add_attention(Table& t);
void add_batch_norm(Table& t);
void add_bessel(Table& t);
void add_binary(Table& t);
void add_bitwise(Table& t);
void add_class_loss(Table& t);
void add_convolution(Table& t);
void add_ctc_loss(Table& t);
void add_distance(Table& t);
void add_embedding(Table& t);
void add_extreme(Table& t);
void add_factory(Table& t);
void add_fft(Table& t);
void add_foreach(Table& t);
void add_fractional_pool(Table& t);
void add_gamma(Table& t);
void add_grid_sampler(Table& t);
void add_grouped_matmul(Table& t);
void add_index(Table& t);
void add_linalg_cholesky(Table& t);
void add_linalg_lu(Table& t);
void add_linalg_qr(Table& t);
void add_linalg_spectrum(Table& t);
void add_loss(Table& t);
void add_matmul(Table& t);
void add_multi_head_attention(Table& t);
void add_norm(Table& t);
void add_optimizer(Table& t);
void add_padding(Table& t);
void add_polynomial(Table& t);
void add_pool(Table& t);
void add_power(Table& t);
void add_random(Table& t);
void add_random_distribution(Table& t);
void add_random_gradient(Table& t);
void add_recurrent(Table& t);
void add_reduce(Table& t);
void add_scan(Table& t);
void add_scatter(Table& t);
void add_search(Table& t);
void add_segment_reduce(Table& t);
void add_shape(Table& t);
void add_shape_backward(Table& t);
void add_softmax(Table& t);
void add_sort(Table& t);
void add_special(Table& t);
void add_ternary(Table& t);
void add_unary(Table& t);
void add_upsample(Table& t);
void add_variance(Table& t);

}  // namespace torch_tpu
