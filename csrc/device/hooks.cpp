// What PyTorch asks a PrivateUse1 backend for by virtual call: availability, generators,
// pinned memory, current device, storage resizing. Registered when the library is loaded.
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "device/generator.h"
#include "device/guard.h"
#include "device/memory.h"
#include "pjrt/pjrt.h"
#include "tensor/cell.h"

namespace torch_tpu {
namespace {

struct TpuHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return pjrt::Client::is_created(); }

  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(device_count()); }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(current_device()); }
  void setCurrentDevice(c10::DeviceIndex device) const override { exchange_device(device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return static_cast<c10::DeviceIndex>(exchange_device(device));
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override { return default_generator(device); }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return at::make_generator<CounterGenerator>(checked_device(device));
  }

  at::Device getDeviceFromPtr(void* data) const override {
    TORCH_CHECK(data != nullptr, "tpu: a null pointer belongs to no device.");
    return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(static_cast<Cell*>(data)->device())};
  }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    resize_storage(storage, nbytes);
  }
};

[[maybe_unused]] const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(new TpuHooks);
  return true;
}();

}  // namespace
}  // namespace torch_tpu
