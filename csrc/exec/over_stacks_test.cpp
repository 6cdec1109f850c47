// Functions over stacks: those that work on elements get a dimension, others none.
#include "exec/over_stacks.h"

#include <gtest/gtest.h>

#include <functional>

#include "stablehlo/emitter.h"

namespace torch_tpu {
namespace {

// A signature whose function `write` makes of inputs of these types.
Signature signature_of(const std::vector<Type>& inputs, const std::function<Values(Emitter&, const Values&)>& write) {
  Emitter e;
  Values values;
  for (const Type& type : inputs) values.push_back(e.input(type));
  Signature s;
  s.input_types = inputs;
  const std::string text = e.finish("one", write(e, values));
  s.text = text.substr(text.find('('));
  return s;
}

const Type kRow(at::kFloat, {3});
const Type kNumber(at::kDouble, {});

TEST(OverStacks, GetADimensionBeforeTheOthers) {
  const Signature s = signature_of({kRow, kRow, kNumber}, [](Emitter& e, const Values& in) {
    const Value factor = e.broadcast_in_dim(e.convert(in[2], at::kFloat), {3}, {});
    return Values{e.binary("multiply", e.binary("add", in[0], in[1]), factor)};
  });
  const auto f = over_stacks(s, {true, true}, 4);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->output_types, (std::vector<Type>{Type(at::kFloat, {4, 3})}));
  EXPECT_EQ(f->text, R"((%0: tensor<4x3xf32>, %1: tensor<4x3xf32>, %2: tensor<f64>) -> (tensor<4x3xf32>) {
  %3 = "stablehlo.convert"(%2) : (tensor<f64>) -> tensor<f32>
  %4 = "stablehlo.broadcast_in_dim"(%3) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<3xf32>
  %5 = "stablehlo.add"(%0, %1) : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>
  %6 = "stablehlo.broadcast_in_dim"(%4) <{broadcast_dimensions = array<i64: 1>}> : (tensor<3xf32>) -> tensor<4x3xf32>
  %7 = "stablehlo.multiply"(%5, %6) : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>
  return %7 : tensor<4x3xf32>
}
)");
}

TEST(OverStacks, OfNumbersAreBroadcastByLayer) {
  const Signature s = signature_of({kRow, Type(at::kFloat, {})}, [](Emitter& e, const Values& in) {
    return Values{e.binary("divide", in[0], e.broadcast_in_dim(in[1], {3}, {}))};
  });
  const auto f = over_stacks(s, {true, true}, 4);
  ASSERT_TRUE(f);
  EXPECT_NE(f->text.find("broadcast_dimensions = array<i64: 0>}> : (tensor<4xf32>) -> tensor<4x3xf32>"),
            std::string::npos);
}

TEST(OverStacks, ReturnStacksOfWhatIsTheSameForAll) {
  const Signature s =
      signature_of({kRow}, [](Emitter& e, const Values& in) { return Values{e.constant(0, in[0].type)}; });
  const auto f = over_stacks(s, {true}, 4);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->output_types, (std::vector<Type>{Type(at::kFloat, {4, 3})}));
}

TEST(OverStacks, AreNotMadeOfWhatTakesMoreThanAnElement) {
  const Signature transpose = signature_of(
      {Type(at::kFloat, {2, 3})}, [](Emitter& e, const Values& in) { return Values{e.transpose(in[0], {1, 0})}; });
  EXPECT_FALSE(over_stacks(transpose, {true}, 4));
  const Signature slice =
      signature_of({kRow}, [](Emitter& e, const Values& in) { return Values{e.slice(in[0], {0}, {2})}; });
  EXPECT_FALSE(over_stacks(slice, {true}, 4));
  Signature drawn = signature_of({kRow}, [](Emitter&, const Values& in) { return in; });
  EXPECT_TRUE(over_stacks(drawn, {true}, 4));
  drawn.random = true;
  EXPECT_FALSE(over_stacks(drawn, {true}, 4));
}

}  // namespace
}  // namespace torch_tpu
