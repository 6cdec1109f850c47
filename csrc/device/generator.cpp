// The counter-based generator and the default one of each device.
#include "device/generator.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/TensorImpl.h>

#include <array>
#include <cstring>
#include <vector>

#include "device/guard.h"

namespace torch_tpu {
namespace {

constexpr int64_t kStateBytes = 2 * sizeof(uint64_t);

}  // namespace

CounterGenerator::CounterGenerator(int device, uint64_t seed)
    : c10::GeneratorImpl(c10::Device(device_type(), static_cast<c10::DeviceIndex>(device)),
                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      seed_(seed) {}

void CounterGenerator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}

uint64_t CounterGenerator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

void CounterGenerator::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  TORCH_CHECK(state.numel() == kStateBytes, "tpu: set_state on a generator: got ", state.numel(), " bytes; expected ",
              kStateBytes, ".\nPass what get_state() of a tpu generator returned.");
  std::array<uint64_t, 2> words;
  std::memcpy(words.data(), state.data(), kStateBytes);
  seed_ = words[0];
  offset_ = words[1];
}

c10::intrusive_ptr<c10::TensorImpl> CounterGenerator::get_state() const {
  const at::TensorBase state =
      at::detail::empty_cpu({kStateBytes}, at::kByte, std::nullopt, std::nullopt, std::nullopt, std::nullopt);
  const std::array<uint64_t, 2> words{seed_, offset_};
  std::memcpy(state.mutable_data_ptr(), words.data(), kStateBytes);
  return state.getIntrusivePtr();
}

void CounterGenerator::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) {
  const auto* other = dynamic_cast<const CounterGenerator*>(state.get());
  TORCH_CHECK(other != nullptr, "tpu: graphsafe_set_state on a generator: the state is not of a tpu generator.");
  seed_ = other->seed_;
  offset_ = other->offset_;
}

c10::intrusive_ptr<c10::GeneratorImpl> CounterGenerator::graphsafe_get_state() const { return clone(); }

std::pair<uint64_t, uint64_t> CounterGenerator::reserve(uint64_t steps) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t start = offset_;
  offset_ += steps;
  return {seed_, start};
}

CounterGenerator* CounterGenerator::clone_impl() const {
  auto* copy = new CounterGenerator(device().index(), seed_);
  copy->offset_ = offset_;
  return copy;
}

const at::Generator& default_generator(int device) {
  static const auto* generators = [] {
    auto* made = new std::vector<at::Generator>;
    for (int i = 0; i < std::max(1, device_count()); ++i) {
      made->push_back(at::make_generator<CounterGenerator>(i));
    }
    return made;
  }();
  return generators->at(checked_device(device));
}

CounterGenerator& generator_or_default(const std::optional<at::Generator>& given, int device) {
  const bool own = given.has_value() && given->defined();
  const at::Generator& generator = own ? *given : default_generator(device);
  TORCH_CHECK(generator.device().type() == CounterGenerator::device_type(),
              "Expected a 'tpu' device type for generator but found '", generator.device().type(), "'");
  return *static_cast<CounterGenerator*>(generator.unsafeGetGeneratorImpl());
}

}  // namespace torch_tpu
