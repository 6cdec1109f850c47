// The random generator of a tpu device: a seed and an offset, nothing else. Draws are a
// function of (seed, offset), so a program takes both as operands and every policy draws the
// same numbers. Its state is 16 bytes: seed, offset, as the machine's own integers.
// reserve() locks; the rest is locked by PyTorch through mutex_.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <optional>
#include <utility>

namespace torch_tpu {

class CounterGenerator final : public c10::GeneratorImpl {
 public:
  explicit CounterGenerator(int device, uint64_t seed = c10::default_rng_seed_val);

  // Sets the seed and starts again at offset 0.
  void set_current_seed(uint64_t seed) override;
  uint64_t current_seed() const override { return seed_; }
  // A new seed from the system's entropy.
  uint64_t seed() override;
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;

  // (seed, offset) for a draw of `steps` counter steps; the next draw starts behind them.
  std::pair<uint64_t, uint64_t> reserve(uint64_t steps);

  static c10::DeviceType device_type() { return c10::DeviceType::PrivateUse1; }

 private:
  CounterGenerator* clone_impl() const override;

  uint64_t seed_;
  uint64_t offset_ = 0;
};

// The generator that draws without one of their own use; -1 is the current device.
const at::Generator& default_generator(int device = -1);

// `given`, or the default one of `device`. Throws if `given` belongs to another kind of device.
CounterGenerator& generator_or_default(const std::optional<at::Generator>& given, int device);

}  // namespace torch_tpu
