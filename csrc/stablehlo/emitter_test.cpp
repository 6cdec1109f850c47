// The text that the emitter writes, word for word.
#include "stablehlo/emitter.h"

#include <gtest/gtest.h>

#include <limits>

#include "stablehlo/compose.h"

namespace torch_tpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The text of `value` as a constant of `dtype`.
std::string constant_text(const at::Scalar& value, at::ScalarType dtype) {
  Emitter e;
  const std::string text = e.finish("f", {e.constant(value, Type(dtype, {}))});
  const size_t start = text.find("dense<") + 6;
  return text.substr(start, text.find('>', start) - start);
}

TEST(Emitter, BroadcastsAVectorAlongTheLastDimension) {
  Emitter e;
  const Value x = e.input({at::kFloat, {3}});
  EXPECT_EQ(e.finish("main", {broadcast_to(e, x, {2, 3})}, /*is_public=*/true), R"(
func.func public @main(%0: tensor<3xf32>) -> (tensor<2x3xf32>) {
  %1 = "stablehlo.broadcast_in_dim"(%0) <{broadcast_dimensions = array<i64: 1>}> : (tensor<3xf32>) -> tensor<2x3xf32>
  return %1 : tensor<2x3xf32>
}
)" + 1);
}

TEST(Emitter, WritesADialectOnlyWhereItIsNotStablehlo) {
  Emitter e;
  const Value x = e.input({at::kBFloat16, {}});
  EXPECT_EQ(e.finish("f", {e.unary("chlo.erf", x), e.unary("tanh", x)}), R"(
func.func private @f(%0: tensor<bf16>) -> (tensor<bf16>, tensor<bf16>) {
  %1 = "chlo.erf"(%0) : (tensor<bf16>) -> tensor<bf16>
  %2 = "stablehlo.tanh"(%0) : (tensor<bf16>) -> tensor<bf16>
  return %1, %2 : tensor<bf16>, tensor<bf16>
}
)" + 1);
}

TEST(Emitter, WritesARegionWithNamesOfItsOwn) {
  Emitter e;
  const Value x = e.input({at::kFloat, {2, 3}});
  EXPECT_EQ(e.finish("f", {e.reduce(x, 0, {1}, "add")}), R"(
func.func private @f(%0: tensor<2x3xf32>) -> (tensor<2xf32>) {
  %1 = "stablehlo.constant"() <{value = dense<0.0> : tensor<f32>}> : () -> tensor<f32>
  %5 = "stablehlo.reduce"(%0, %1) <{dimensions = array<i64: 1>}> ({
  ^bb0(%2: tensor<f32>, %3: tensor<f32>):
  %4 = "stablehlo.add"(%2, %3) : (tensor<f32>, tensor<f32>) -> tensor<f32>
  "stablehlo.return"(%4) : (tensor<f32>) -> ()
  }) : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
  return %5 : tensor<2xf32>
}
)" + 1);
}

TEST(Emitter, ReturnsSeveralResultsOfOneOperation) {
  Emitter e;
  const Value keys = e.input({at::kInt, {4}});
  const Value values = e.input({at::kLong, {4}});
  const Values sorted =
      e.sort({keys, values}, 0, true, [&](const Values& in) { return Values{e.compare("LT", in[0], in[1])}; });
  const std::string text = e.finish("f", sorted);
  EXPECT_NE(text.find("  %7, %8 = \"stablehlo.sort\"(%0, %1) <{dimension = 0 : i64, is_stable = true}> ({"),
            std::string::npos)
      << text;
}

TEST(Emitter, WritesNothingForShapesThatStay) {
  Emitter e;
  const Value x = e.input({at::kFloat, {2, 3}});
  const Value zero = e.input({at::kFloat, {}});
  for (const Value& same : {e.reshape(x, {2, 3}), e.transpose(x, {0, 1}), e.broadcast_in_dim(x, {2, 3}, {0, 1}),
                            e.slice(x, {0, 0}, {2, 3}), e.pad(x, zero, {0, 0}, {0, 0}), e.concatenate({x}, 0),
                            e.reverse(x, {}), e.reduce(x, 0, {}, "add"), e.convert(x, at::kFloat)}) {
    EXPECT_EQ(same.id, x.id);
  }
}

TEST(Emitter, WritesFloatsExactly) {
  EXPECT_EQ(constant_text(1, at::kFloat), "1.0");
  EXPECT_EQ(constant_text(-0.0, at::kFloat), "-0.0");
  EXPECT_EQ(constant_text(0.1, at::kFloat), "0.1");
  EXPECT_EQ(constant_text(1e-5, at::kDouble), "1.0e-05");
  EXPECT_EQ(constant_text(0.1, at::kBFloat16), "0.100097656");
  EXPECT_EQ(constant_text(kInfinity, at::kFloat), "0x7F800000");
  EXPECT_EQ(constant_text(-kInfinity, at::kBFloat16), "0xFF80");
  EXPECT_EQ(constant_text(kInfinity, at::kDouble), "0x7FF0000000000000");
  EXPECT_EQ(constant_text(65520.0, at::kHalf), "0x7C00");
}

TEST(Emitter, WritesOtherNumbersByTheirKind) {
  EXPECT_EQ(constant_text(2, at::kBool), "true");
  EXPECT_EQ(constant_text(-1, at::kLong), "-1");
  EXPECT_EQ(constant_text(255, at::kByte), "255");
  EXPECT_EQ(constant_text(std::numeric_limits<uint64_t>::max(), at::kUInt64), "18446744073709551615");
  EXPECT_EQ(constant_text(c10::complex<double>(1, -2), at::kComplexFloat), "(1.0, -2.0)");
}

TEST(Emitter, WritesAnEmptyList) {
  Emitter e;
  const std::string text = e.finish("f", {e.list(c10::ArrayRef<int64_t>{})});
  EXPECT_NE(text.find("dense<> : tensor<0xi64>"), std::string::npos) << text;
}

TEST(Emitter, ConvertsToBoolByComparingWithZero) {
  Emitter e;
  const Value x = e.input({at::kFloat, {}});
  const std::string text = e.finish("f", {e.convert(x, at::kBool)});
  EXPECT_NE(text.find("comparison_direction NE"), std::string::npos) << text;
}

TEST(Emitter, ConvertsComplexToRealByTheRealPart) {
  Emitter e;
  const Value x = e.input({at::kComplexFloat, {}});
  const std::string text = e.finish("f", {e.convert(x, at::kDouble)});
  EXPECT_NE(text.find("\"stablehlo.real\""), std::string::npos) << text;
}

TEST(Emitter, ConvertsFloatsToSmallIntegersThroughALargerOne) {
  Emitter e;
  const Value x = e.input({at::kFloat, {}});
  const std::string text = e.finish("f", {e.convert(x, at::kByte)});
  EXPECT_NE(text.find("(tensor<f32>) -> tensor<i32>"), std::string::npos) << text;
  EXPECT_NE(text.find("(tensor<i32>) -> tensor<ui8>"), std::string::npos) << text;
}

TEST(Emitter, RefusesOperandsOfDifferentTypes) {
  Emitter e;
  const Value x = e.input({at::kFloat, {2}});
  const Value y = e.input({at::kFloat, {3}});
  EXPECT_THROW(e.add(x, y), c10::Error);
  EXPECT_THROW(e.compare("LT", x, y), c10::Error);
  EXPECT_THROW(e.select(x, x, x), c10::Error);
}

TEST(Compose, BroadcastsSizesFromTheLastDimension) {
  EXPECT_EQ(broadcast_dims({4, 1, 3}, {2, 1}), (Dims{4, 2, 3}));
  EXPECT_EQ(broadcast_dims({0}, {1}), (Dims{0}));
  EXPECT_THROW(broadcast_dims({2}, {3}), c10::Error);
}

}  // namespace
}  // namespace torch_tpu
