// Compile options: a CompileOptionsProto written by hand, a few varints (field numbers from XLA's
// xla/pjrt/proto/compile_options.proto), so that no protobuf library is needed. XLA's flags travel
// in it by name; a plugin refuses a name that it does not know.
#include <string>
#include <string_view>

#include "pjrt/call.h"

namespace torch_tpu::pjrt {
namespace {

enum WireType : uint64_t { kVarint = 0, kBytes = 2 };

class Message {
 public:
  Message& integer(uint64_t field, uint64_t value) {
    varint(field << 3 | kVarint);
    varint(value);
    return *this;
  }
  Message& bytes(uint64_t field, std::string_view value) {
    varint(field << 3 | kBytes);
    varint(value.size());
    text_ += value;
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
      text_ += static_cast<char>(value | 0x80);
    }
    text_ += static_cast<char>(value);
  }
  std::string text_;
};

// CompileOptionsProto.
constexpr uint64_t kExecutableBuildOptions = 3;
constexpr uint64_t kCompilePortableExecutable = 4;
constexpr uint64_t kEnvOptionOverrides = 7;  // map<string, OptionOverrideProto>: XLA flags
// ExecutableBuildOptionsProto.
constexpr uint64_t kNumReplicas = 4;
constexpr uint64_t kNumPartitions = 5;
constexpr uint64_t kUseSpmdPartitioning = 6;
constexpr uint64_t kUseShardyPartitioner = 19;
// An entry of a map, and OptionOverrideProto.
constexpr uint64_t kMapKey = 1;
constexpr uint64_t kMapValue = 2;
constexpr uint64_t kStringField = 1;
constexpr uint64_t kBoolField = 2;
constexpr uint64_t kIntField = 3;

std::string flag(std::string_view name, uint64_t field, uint64_t value) {
  return Message().bytes(kMapKey, name).bytes(kMapValue, Message().integer(field, value).text()).text();
}

std::string flag(std::string_view name, std::string_view value) {
  return Message().bytes(kMapKey, name).bytes(kMapValue, Message().bytes(kStringField, value).text()).text();
}

// The newest tried plugin that has the flag, and the oldest tried that refuses it: API 0.106 and 0.115.
constexpr int kLastWithFusionEmitterFlag = 106;

}  // namespace

std::string Client::encode(const CompileOptions& options) {
  Message proto;
  Message build;
  build.integer(kNumReplicas, 1).integer(kNumPartitions, static_cast<uint64_t>(options.partitions));
  if (options.partitions > 1) {
    build.integer(kUseSpmdPartitioning, 1);
  }
  if (options.shardy) {
    build.integer(kUseShardyPartitioner, 1);
  }
  proto.bytes(kExecutableBuildOptions, build.text());
  if (options.partitions == 1 && (compiles_for_tpu() || get().runs_portable())) {
    proto.integer(kCompilePortableExecutable, 1);
  }
  const auto set = [&proto](std::string_view name, auto... value) {
    proto.bytes(kEnvOptionOverrides, flag(name, value...));
  };
  // A fused bfloat16 program must round where the same calls one by one round.
  set("xla_allow_excess_precision", kBoolField, 0);
  for (const auto& [name, value] : options.flags) {
    set(name, value);
  }
  if (compiles_for_tpu()) {
    return proto.text();
  }
  // The default of every CPU plugin tried drops NaN in maximum and minimum.
  set("xla_cpu_enable_fast_min_max", kBoolField, 0);
  // The default of 256 bits leaves half of AVX-512's registers unused; processors without it take what they have.
  set("xla_cpu_prefer_vector_width", kIntField, 512);
  if (options.fast) {
    set("xla_backend_optimization_level", kIntField, 0);
    // The emitters for fusions cost more to set up than a small program does to compile without them.
    if (api() != nullptr && api()->pjrt_api_version.minor_version <= kLastWithFusionEmitterFlag) {
      set("xla_cpu_use_fusion_emitters", kBoolField, 0);
    } else {
      set("xla_disable_hlo_passes", "fusion-wrapper");
    }
  }
  return proto.text();
}

}  // namespace torch_tpu::pjrt
