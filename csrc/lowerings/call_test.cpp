// What a lowering learns from a call, and what it leaves behind by asking.
#include "lowerings/call.h"

#include <gtest/gtest.h>

namespace torch_tpu {
namespace {

struct Fixture : testing::Test {
  Emitter e;
  Observations observations;

  Argument tensor(at::ScalarType dtype, Dims dims, bool wrapped = false) {
    return TensorArgument{e.input({dtype, dims}), wrapped};
  }
  Argument number(const at::Scalar& value) {
    return NumberArgument{value, e.input({value.isFloatingPoint() ? at::kDouble : at::kLong, {}})};
  }
  Call call(std::vector<std::string> names, std::vector<Argument> arguments, Value random_state = {}) {
    return Call(e, std::move(names), std::move(arguments), {}, {}, observations, random_state);
  }
};
using Promotion = Fixture;
using Observing = Fixture;
using Drawing = Fixture;
using Access = Fixture;

TEST_F(Promotion, LetsDimensionsOutrankZeroDimAndNumbers) {
  EXPECT_EQ(call({"self", "other"}, {tensor(at::kBFloat16, {2}), tensor(at::kDouble, {})}).common_dtype(),
            at::kBFloat16);
  EXPECT_EQ(call({"self", "other"}, {tensor(at::kChar, {2}), number(3)}).common_dtype(), at::kChar);
  EXPECT_EQ(call({"self", "other"}, {tensor(at::kChar, {2}), number(3.0)}).common_dtype(), at::kFloat);
  EXPECT_EQ(call({"self", "other"}, {tensor(at::kHalf, {}), number(3.0)}).common_dtype(), at::kHalf);
  EXPECT_EQ(call({"self", "other"}, {tensor(at::kBool, {2}), number(true)}).common_dtype(), at::kBool);
}

TEST_F(Promotion, RaisesTheKindWhereTheLesserOperandIsOfAHigherKind) {
  EXPECT_EQ(call({"self", "other"}, {tensor(at::kLong, {2}), tensor(at::kHalf, {})}).common_dtype(), at::kHalf);
  EXPECT_EQ(call({"self", "other"}, {tensor(at::kDouble, {2}), tensor(at::kComplexFloat, {})}).common_dtype(),
            at::kComplexDouble);
  EXPECT_EQ(call({"self", "other"}, {tensor(at::kBool, {2}), number(2)}).common_dtype(), at::kLong);
}

TEST_F(Promotion, MakesFloatsOfIntegersWhereAsked) {
  const Call c = call({"self"}, {tensor(at::kInt, {2})});
  EXPECT_EQ(c.common_dtype(Promote::kIntToFloat), at::kFloat);
  EXPECT_EQ(c.promoted("self", Promote::kIntToFloat).dtype(), at::kFloat);
}

TEST_F(Promotion, CountsOnlyTheArgumentsNamed) {
  const Call c = call({"self", "other"}, {tensor(at::kInt, {2}), tensor(at::kDouble, {2})});
  EXPECT_EQ(c.common_dtype(Promote::kDefault, {"self"}), at::kInt);
}

TEST_F(Promotion, GivesANumberWhereATensorIsExpected) {
  const Value other = call({"self", "other"}, {tensor(at::kHalf, {2}), number(3)}).promoted("other");
  EXPECT_EQ(other.type, Type(at::kHalf, {}));
}

TEST_F(Observing, RemembersWhatWasAskedOfANumber) {
  const Call c = call({"self", "alpha"}, {tensor(at::kFloat, {2}), number(1)});
  c.number("alpha", at::kFloat);
  EXPECT_TRUE(observations.arguments.empty());
  EXPECT_TRUE(c.equals("alpha", 1));
  EXPECT_EQ(observations.arguments.at(1).constants, std::vector<double>{1});
  EXPECT_FALSE(observations.arguments.at(1).value);
  EXPECT_EQ(c.scalar("alpha").toLong(), 1);
  EXPECT_TRUE(observations.arguments.at(1).value);
}

TEST_F(Observing, CountsForTheListThatAnElementIsOf) {
  const Argument numbers = std::vector<NumberArgument>{{2.0, e.input({at::kDouble, {}})}};
  const Argument tensors = std::vector<TensorArgument>{{e.input({at::kFloat, {2}}), false}};
  const Call whole = call({"self", "scalars"}, {tensors, numbers});
  const Call one = whole.element(0, {{"self", "self", {}}, {"other", "scalars", {}}, {"alpha", "", int64_t{1}}},
                                 Type(at::kFloat, {2}));
  EXPECT_TRUE(one.equals("other", 2));
  EXPECT_TRUE(one.equals("alpha", 1));
  EXPECT_EQ(observations.arguments.size(), 2u);
  EXPECT_EQ(observations.arguments.at(1).constants, std::vector<double>{2});
}

TEST_F(Drawing, NeverUsesACounterTwice) {
  const Call c = call({}, {}, e.input({at::kUInt64, {2}}));
  c.random_bits(at::kUInt32, {3});
  EXPECT_GE(c.draws(), 2);
  const int64_t before = c.draws();
  c.random_bits(at::kUInt64, {5});
  EXPECT_GE(c.draws(), before + 5);
}

TEST_F(Access, NamesTheArgumentThatHoldsAnotherKind) {
  const Call c = call({"self", "dim"}, {tensor(at::kFloat, {2}), int64_t{1}});
  try {
    c.flag("dim");
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("`dim` holds an int"), std::string::npos) << error.what();
  }
  EXPECT_THROW(c.tensor("other"), c10::Error);
}

TEST_F(Access, WrapsAndSortsDims) {
  const Call c = call({"dim", "none"}, {std::vector<int64_t>{-1, 0}, std::monostate{}});
  EXPECT_EQ(c.dims("dim", 3), (Dims{0, 2}));
  EXPECT_EQ(c.dims("none", 2), (Dims{0, 1}));
  EXPECT_TRUE(c.dims("dim", 0).empty());
  EXPECT_THROW(Call::wrap(3, 3), c10::Error);
}

}  // namespace
}  // namespace torch_tpu
