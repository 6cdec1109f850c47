// The client against a real CPU plugin, TORCH_TPU_PJRT_PLUGIN; skipped where that is not set.
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "pjrt/call.h"

namespace torch_tpu::pjrt {
namespace {

constexpr int kDevices = 8;

struct ClientTest : testing::Test {
  void SetUp() override {
    if (std::getenv("TORCH_TPU_PJRT_PLUGIN") == nullptr) {
      GTEST_SKIP() << "TORCH_TPU_PJRT_PLUGIN is not set";
    }
    setenv("TORCH_TPU_DEVICE_COUNT", std::to_string(kDevices).c_str(), /*overwrite=*/1);
  }

  static std::string add(const std::string& attributes = "") {
    return "func.func public @main(%0: tensor<4xf32> " + attributes +
           ", %1: tensor<4xf32>) -> tensor<4xf32> {\n"
           "  %2 = stablehlo.add %0, %1 : tensor<4xf32>\n  return %2 : tensor<4xf32>\n}\n";
  }
  static Buffer numbers(int device) {
    const float values[4] = {1, 2, 3, 4};
    return Client::get().from_host(values, {at::kFloat, {4}}, device);
  }
  static std::vector<float> read(PJRT_Buffer* buffer) {
    std::vector<float> values(4);
    Client::get().to_host(buffer, values.data(), values.size() * sizeof(float));
    return values;
  }
  static bool is_deleted(PJRT_Buffer* buffer) { return PJRT_CALL(PJRT_Buffer_IsDeleted, .buffer = buffer).is_deleted; }
  static std::vector<float> run_add(PJRT_LoadedExecutable* executable, int device) {
    const Buffer x = numbers(device);
    std::vector<Buffer> results;
    Client::get().execute(executable, {x.get(), x.get()}, {}, results, device);
    EXPECT_EQ(results.size(), 1u);
    return read(results[0].get());
  }
};
using Clients = ClientTest;

const std::vector<float> kDoubled = {2, 4, 6, 8};

TEST_F(Clients, RunAPortableProgramOnEveryDevice) {
  Client& client = Client::get();
  ASSERT_EQ(client.device_count(), kDevices);
  const LoadedExecutable executable = client.compile(add(), {});
  for (int device = 0; device < kDevices; ++device) {
    EXPECT_EQ(run_add(executable.get(), device), kDoubled);
  }
}

TEST_F(Clients, GiveTheSameWithLeastCompileEffort) {
  EXPECT_EQ(run_add(Client::get().compile(add(), {.fast = true}).get(), 0), kDoubled);
}

TEST_F(Clients, LoadWhatTheySerialized) {
  Client& client = Client::get();
  const std::string bytes = client.serialize(client.compile(add(), {}).get());
  EXPECT_EQ(run_add(client.deserialize(bytes).get(), kDevices - 1), kDoubled);
}

TEST_F(Clients, DonateWhatTheModuleNamesUnlessItIsRefused) {
  Client& client = Client::get();
  const LoadedExecutable executable = client.compile(add("{tf.aliasing_output = 0 : i32}"), {});
  const Buffer x = numbers(0);
  const Buffer y = numbers(0);
  std::vector<Buffer> results;
  client.execute(executable.get(), {x.get(), y.get()}, {0}, results, 0);
  EXPECT_FALSE(is_deleted(x.get()));
  client.execute(executable.get(), {x.get(), y.get()}, {}, results, 0);
  EXPECT_TRUE(is_deleted(x.get()));
  EXPECT_FALSE(is_deleted(y.get()));
  EXPECT_EQ(read(results[0].get()), kDoubled);
}

TEST_F(Clients, CopyBetweenDevices) {
  Client& client = Client::get();
  const Buffer x = numbers(0);
  EXPECT_EQ(read(client.copy_to_device(x.get(), kDevices - 1).get()), (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(Clients, MoveEmptyAndZeroDimValues) {
  Client& client = Client::get();
  const Buffer empty = client.from_host(nullptr, {at::kFloat, {0, 3}}, 0);
  client.to_host(empty.get(), nullptr, 0);
  const bool yes = true;
  const Buffer scalar = client.from_host(&yes, {at::kBool, {}}, 0);
  bool read_back = false;
  client.to_host(scalar.get(), &read_back, 1);
  EXPECT_TRUE(read_back);
}

TEST_F(Clients, ThrowPjrtsTextBehindTheFunctionsName) {
  try {
    Client::get().compile("func.func public @main() { nonsense }", {});
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_EQ(std::string(error.what()).rfind("tpu: PJRT_Client_Compile failed: ", 0), 0u) << error.what();
  }
}

TEST_F(Clients, ThrowOutOfMemoryWithTheSizeAsked) {
  Client& client = Client::get();
  const LoadedExecutable huge = client.compile(
      "func.func public @main() -> tensor<400000000000xf32> {\n"
      "  %0 = stablehlo.constant dense<1.0> : tensor<f32>\n"
      "  %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<400000000000xf32>\n"
      "  return %1 : tensor<400000000000xf32>\n}\n",
      {});
  std::vector<Buffer> results;
  try {
    client.execute(huge.get(), {}, {}, results, 0);
    await(results[0].get());
    FAIL();
  } catch (const c10::OutOfMemoryError& error) {
    EXPECT_NE(std::string(error.what()).find("1600000000000 bytes"), std::string::npos) << error.what();
  }
}

TEST_F(Clients, RefuseADtypeThatDevicesLack) { EXPECT_THROW(buffer_type(at::kQInt8), c10::NotImplementedError); }

}  // namespace
}  // namespace torch_tpu::pjrt
