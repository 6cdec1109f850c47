// PyTorch's device guard for tpu: current device, streams, events.
// A device has one queue, so streams only carry an id, waiting for a stream waits for the
// device, and a stream that waits for an event has nothing to do.
#include "device/guard.h"

#include <c10/core/DeviceCapability.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "device/discovery.h"
#include "device/synchronize.h"
#include "pjrt/pjrt.h"
#include "stablehlo/type.h"

namespace torch_tpu {
namespace {

constexpr auto kTpu = c10::DeviceType::PrivateUse1;
constexpr int kMaxDevices = 128;

thread_local int this_device = 0;
thread_local std::array<c10::StreamId, kMaxDevices> this_stream{};

const std::thread::id first_thread = std::this_thread::get_id();  // the one that loads the library
std::atomic<bool> others_choose{false};

std::atomic<c10::StreamId> last_stream{0};
std::atomic<void (*)(int)> synchronizer{nullptr};
std::atomic<void (*)(int)> flusher{nullptr};

int slot(int device) noexcept { return device >= 0 && device < kMaxDevices ? device : 0; }

// What a torch.Event points to. `when` is set only if the event measures time.
struct Event {
  int device = 0;
  bool timed = false;
  std::chrono::steady_clock::time_point when;
};

struct TpuGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kTpu; }

  c10::Device exchangeDevice(c10::Device device) const override { return device_at(exchange_device(device.index())); }
  c10::Device getDevice() const override { return device_at(this_device); }
  void setDevice(c10::Device device) const override {
    if (std::this_thread::get_id() != first_thread) others_choose = true;
    exchange_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) {
      this_device = device.index();
    }
  }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(device_count()); }

  c10::Stream getStream(c10::Device device) const override {
    return stream_at(device, current_stream(index_of(device)));
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream_at(device, 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return stream_at(device, ++last_stream);
  }
  c10::Stream getNewStream(c10::Device device, int) const override { return stream_at(device, ++last_stream); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return stream_at(stream.device(), exchange_stream(stream.device_index(), stream.id()));
  }
  void* getStreamNativeHandle(const c10::Stream) const override { return nullptr; }
  // Recorded work would never be done if nobody ran it, so asking waits.
  bool queryStream(const c10::Stream& stream) const override {
    synchronize_device(stream.device_index());
    return true;
  }
  void synchronizeStream(const c10::Stream& stream) const override { synchronize_device(stream.device_index()); }
  void synchronizeDevice(const c10::DeviceIndex device) const override { synchronize_device(checked_device(device)); }

  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  // A timed event waits for the work before it, so that the time between two of them is the time
  // of the work between them. The others cost nothing.
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex device,
              const c10::EventFlag flag) const override {
    TORCH_CHECK(device == -1 || device == stream.device_index(), "tpu: an event of device ", int{device},
                " cannot be recorded on a stream of device ", int{stream.device_index()}, ".");
    if (*event == nullptr) {
      *event = new Event;
    }
    auto& recorded = *static_cast<Event*>(*event);
    recorded.device = stream.device_index();
    recorded.timed = flag == c10::EventFlag::BACKEND_DEFAULT;
    if (recorded.timed) {
      synchronize_device(recorded.device);
      recorded.when = std::chrono::steady_clock::now();
    }
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void* event) const override {
    synchronizeEvent(event);
    return true;
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr && !static_cast<Event*>(event)->timed) {
      synchronize_device(static_cast<Event*>(event)->device);
    }
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    TORCH_CHECK(start != nullptr && end != nullptr,
                "tpu: elapsed_time needs two recorded events.\nCall record() on both first.");
    const auto& from = *static_cast<Event*>(start);
    const auto& to = *static_cast<Event*>(end);
    TORCH_CHECK(from.timed && to.timed, "tpu: elapsed_time needs events made with enable_timing=True.");
    return std::chrono::duration<double, std::milli>(to.when - from.when).count();
  }

  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    c10::DeviceCapability capability;
    uint64_t bits = 0;
    for (int i = 0; i < static_cast<int>(c10::NUMBER_OF_DEVICE_CAPABILITIES); ++i) {
      bits |= has_element_name(static_cast<at::ScalarType>(i)) ? uint64_t{1} << i : 0;
    }
    capability.capability_data.capability_bits = bits;
    return capability;
  }

 private:
  static int index_of(c10::Device device) { return device.has_index() ? device.index() : this_device; }
  static c10::Device device_at(int index) { return {kTpu, static_cast<c10::DeviceIndex>(index)}; }
  static c10::Stream stream_at(c10::Device device, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, device_at(index_of(device)), id);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, TpuGuard)

}  // namespace

int device_count() noexcept {
  static const int found = discover_devices();
  try {
    if (pjrt::Client::is_created()) {
      return std::min(found, pjrt::Client::get().device_count());
    }
  } catch (...) {
  }
  return found;
}

int current_device() noexcept { return this_device; }

bool other_threads_choose_devices() noexcept { return others_choose; }

int exchange_device(int device) {
  const int previous = this_device;
  if (device >= 0) {
    this_device = checked_device(device);
  }
  return previous;
}

int checked_device(int device) {
  if (device == -1) {
    return this_device;
  }
  const int count = device_count();
  TORCH_CHECK(device >= 0 && device < count, "tpu: no device tpu:", device, ": ", count,
              count == 1 ? " device is" : " devices are", " here.\n",
              count == 0 ? "Install a PJRT plugin: pip install xla-cpu-pjrt"
                         : "On the CPU plugin, TORCH_TPU_DEVICE_COUNT=n gives n devices.");
  return device;
}

int64_t current_stream(int device) noexcept { return this_stream[slot(device)]; }

int64_t exchange_stream(int device, int64_t id) noexcept { return std::exchange(this_stream[slot(device)], id); }

void set_synchronizer(void (*synchronize)(int device)) { synchronizer = synchronize; }

void set_flusher(void (*flush)(int device)) { flusher = flush; }

void synchronize_device(int device) {
  if (auto* synchronize = synchronizer.load()) {
    synchronize(device);
  }
}

void flush_device(int device) {
  if (auto* flush = flusher.load()) {
    flush(device);
  }
}

}  // namespace torch_tpu
