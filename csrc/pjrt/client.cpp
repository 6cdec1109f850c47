// The PJRT client of this process: devices, buffers, programs. The hot path is execute():
// it allocates nothing but its results.
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>

#include "pjrt/call.h"
#include "pjrt/in_flight.h"
#include "pjrt/pjrt.h"

namespace torch_tpu::pjrt {
namespace {

std::atomic<bool> created{false};

constexpr std::string_view kProgramFormat = "mlir";

// How many devices the CPU plugin shows: TORCH_TPU_DEVICE_COUNT, 1 if unset.
int64_t wanted_cpu_devices() {
  const char* text = std::getenv("TORCH_TPU_DEVICE_COUNT");
  if (text == nullptr || *text == '\0') {
    return 1;
  }
  char* end = nullptr;
  const int64_t count = std::strtoll(text, &end, 10);
  TORCH_CHECK(*end == '\0' && count >= 1 && count <= 1024, "tpu: TORCH_TPU_DEVICE_COUNT is ", text,
              "; expected a number from 1 to 1024.");
  return count;
}

PluginChoice required_plugin() {
  auto choice = choose_plugin();
  TORCH_CHECK(choice.has_value(),
              "tpu: no PJRT plugin was found.\nInstall one: pip install xla-cpu-pjrt (runs on the host), or libtpu on a"
              " TPU machine, or set TORCH_TPU_PJRT_PLUGIN to a plugin's path.");
  if (choice->kind == PluginKind::kCpu && has_tpu() && std::getenv("TORCH_TPU_PLATFORM") == nullptr &&
      std::getenv("TORCH_TPU_PJRT_PLUGIN") == nullptr) {
    TORCH_WARN(
        "tpu: this machine has a TPU, but its plugin is not installed, so everything runs on the host.\n"
        "Install it: pip install libtpu, or set TORCH_TPU_PLATFORM=cpu if this is meant.");
  }
  return *std::move(choice);
}

PJRT_Client* create_client(PluginKind kind) {
  const int64_t count = wanted_cpu_devices();
  constexpr std::string_view name = "cpu_device_count";
  PJRT_NamedValue option{};
  option.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  option.name = name.data();
  option.name_size = name.size();
  option.type = PJRT_NamedValue_kInt64;
  option.int64_value = count;
  option.value_size = 1;
  const size_t num_options = kind == PluginKind::kCpu ? 1 : 0;
  try {
    return PJRT_CALL(PJRT_Client_Create, .create_options = &option, .num_options = num_options).client;
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    const bool held = text.find("lockfile") != std::string::npos || text.find("already in use") != std::string::npos;
    TORCH_CHECK(kind != PluginKind::kTpu, text,
                held ? "\nAnother process holds the TPU: end it first (often a notebook)."
                     : "\nTo run on the host instead: TORCH_TPU_PLATFORM=cpu.");
    throw;
  }
}

PJRT_Program mlir_program(std::string_view module) {
  PJRT_Program program{};
  program.struct_size = PJRT_Program_STRUCT_SIZE;
  program.code = const_cast<char*>(module.data());
  program.code_size = module.size();
  program.format = kProgramFormat.data();
  program.format_size = kProgramFormat.size();
  return program;
}

Event ready_event(PJRT_Buffer* buffer) { return Event(PJRT_CALL(PJRT_Buffer_ReadyEvent, .buffer = buffer).event); }

}  // namespace

Client& Client::get() {
  // Leaked: tensors may outlive static destruction.
  static Client* const client = new Client();
  return *client;
}

bool Client::is_created() { return created.load(std::memory_order_acquire); }

Client::Client() {
  PluginChoice choice = required_plugin();
  load_plugin(choice.path);
  path_ = std::move(choice.path);
  client_ = create_client(choice.kind);
  const auto name = PJRT_CALL(PJRT_Client_PlatformName, .client = client_);
  platform_.assign(name.platform_name, name.platform_name_size);
  kind_ = platform_ == "cpu" ? PluginKind::kCpu : PluginKind::kTpu;
  const auto version = PJRT_CALL(PJRT_Client_PlatformVersion, .client = client_);
  version_.assign(version.platform_version, version.platform_version_size);
  const auto devices = PJRT_CALL(PJRT_Client_AddressableDevices, .client = client_);
  devices_.assign(devices.addressable_devices, devices.addressable_devices + devices.num_addressable_devices);
  TORCH_CHECK(!devices_.empty(), "tpu: the PJRT plugin ", path_, " shows no device.");
  in_flight_ = std::make_unique<InFlight[]>(devices_.size());
  created.store(true, std::memory_order_release);
}

std::string Client::device_kind(int device) const {
  auto* description = PJRT_CALL(PJRT_Device_GetDescription, .device = devices_.at(device)).device_description;
  const auto kind = PJRT_CALL(PJRT_DeviceDescription_Kind, .device_description = description);
  return std::string(kind.device_kind, kind.device_kind_size);
}

std::map<std::string, int64_t> Client::memory_stats(int device) const {
  std::map<std::string, int64_t> stats;
  PJRT_Device_MemoryStats_Args s{};
  try {
    s = PJRT_CALL(PJRT_Device_MemoryStats, .device = devices_.at(device));
  } catch (const c10::NotImplementedError&) {
    return stats;
  }
  stats["bytes_in_use"] = s.bytes_in_use;
#define TORCH_TPU_STATISTIC(field) \
  if (s.field##_is_set) {          \
    stats[#field] = s.field;       \
  }
  TORCH_TPU_STATISTIC(peak_bytes_in_use)
  TORCH_TPU_STATISTIC(num_allocs)
  TORCH_TPU_STATISTIC(largest_alloc_size)
  TORCH_TPU_STATISTIC(bytes_limit)
  TORCH_TPU_STATISTIC(bytes_reserved)
  TORCH_TPU_STATISTIC(peak_bytes_reserved)
  TORCH_TPU_STATISTIC(bytes_reservable_limit)
  TORCH_TPU_STATISTIC(largest_free_block_bytes)
  TORCH_TPU_STATISTIC(pool_bytes)
  TORCH_TPU_STATISTIC(peak_pool_bytes)
#undef TORCH_TPU_STATISTIC
  return stats;
}

Buffer Client::from_host(const void* data, const Type& type, int device) {
  auto args = PJRT_CALL(PJRT_Client_BufferFromHostBuffer, .client = client_, .data = data,
                        .type = buffer_type(type.dtype), .dims = type.dims.data(), .num_dims = type.dims.size(),
                        .host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall,
                        .device = devices_.at(device));
  const Event done(args.done_with_host_buffer);
  return Buffer(args.buffer);
}

void Client::to_host(PJRT_Buffer* buffer, void* data, size_t nbytes) {
  // A null destination asks PJRT for the size, and gives no event to wait for.
  if (nbytes == 0) {
    return;
  }
  if (kind_ == PluginKind::kCpu) {
    // A device array is host memory here, row-major: PJRT's own copy goes through a thread pool, which takes
    // 20 us and more for a scalar.
    await(buffer);
    const void* source = PJRT_CALL(PJRT_Buffer_OpaqueDeviceMemoryDataPointer, .buffer = buffer).device_memory_ptr;
    std::memcpy(data, source, nbytes);
    return;
  }
  // Without a layout PJRT copies in the order of the device's, which need not be row-major.
  const size_t rank = PJRT_CALL(PJRT_Buffer_Dimensions, .buffer = buffer).num_dims;
  c10::SmallVector<int64_t, 6> minor_to_major(rank);
  for (size_t i = 0; i < rank; ++i) {
    minor_to_major[i] = static_cast<int64_t>(rank - 1 - i);
  }
  PJRT_Buffer_MemoryLayout layout{};
  layout.struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE;
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
  layout.tiled.minor_to_major = minor_to_major.data();
  layout.tiled.minor_to_major_size = rank;
  const Event copied(PJRT_CALL(PJRT_Buffer_ToHostBuffer, .src = buffer, .host_layout = rank < 2 ? nullptr : &layout,
                               .dst = data, .dst_size = nbytes)
                         .event);
  if (copied != nullptr) {
    PJRT_CALL(PJRT_Event_Await, .event = copied.get());
  }
}

Buffer Client::copy_to_device(PJRT_Buffer* buffer, int device) {
  return Buffer(PJRT_CALL(PJRT_Buffer_CopyToDevice, .buffer = buffer, .dst_device = devices_.at(device)).dst_buffer);
}

LoadedExecutable Client::compile(std::string_view module, const CompileOptions& options) {
  const PJRT_Program program = mlir_program(module);
  const std::string encoded = encode(options);
  try {
    return LoadedExecutable(PJRT_CALL(PJRT_Client_Compile, .client = client_, .program = &program,
                                      .compile_options = encoded.data(), .compile_options_size = encoded.size())
                                .executable);
  } catch (const c10::NotImplementedError&) {
    // The CPU plugin with API 0.115 needs for a scatter what least effort leaves out.
    if (!options.fast) {
      throw;
    }
  }
  return compile(module, {});
}

Executable executable_of(PJRT_LoadedExecutable* loaded) {
  return Executable(PJRT_CALL(PJRT_LoadedExecutable_GetExecutable, .loaded_executable = loaded).executable);
}

int64_t scratch_bytes(PJRT_LoadedExecutable* loaded) {
  const Executable executable = executable_of(loaded);
  try {
    return PJRT_CALL(PJRT_Executable_GetCompiledMemoryStats, .executable = executable.get()).temp_size_in_bytes;
  } catch (const c10::NotImplementedError&) {
    return 0;
  }
}

std::string Client::serialize(PJRT_LoadedExecutable* loaded) { return pjrt::serialize(executable_of(loaded).get()); }

LoadedExecutable Client::deserialize(std::string_view bytes) {
  return LoadedExecutable(PJRT_CALL(PJRT_Executable_DeserializeAndLoad, .client = client_,
                                    .serialized_executable = bytes.data(), .serialized_executable_size = bytes.size())
                              .loaded_executable);
}

void Client::execute(PJRT_LoadedExecutable* executable, c10::ArrayRef<PJRT_Buffer*> arguments,
                     c10::ArrayRef<int64_t> not_donated, std::vector<Buffer>& results, int device, bool brief) {
  if (results.empty()) {
    results.resize(num_outputs(executable));
  }
  if (!brief) in_flight_[device].make_room();
  // An owner is one pointer, but PJRT writes plain ones.
  c10::SmallVector<PJRT_Buffer*, 16> outputs(results.size());
  PJRT_ExecuteOptions options{};
  options.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE;
  options.non_donatable_input_indices = not_donated.data();
  options.num_non_donatable_input_indices = not_donated.size();
  PJRT_Buffer* const* argument_list = arguments.data();
  PJRT_Buffer** output_list = outputs.data();
  PJRT_Event* done = nullptr;
  // A portable program must be told its device, for which plugins copy its compile options at each execution.
  PJRT_CALL(PJRT_LoadedExecutable_Execute, .executable = executable, .options = &options,
            .argument_lists = &argument_list, .num_devices = 1, .num_args = arguments.size(),
            .output_lists = &output_list, .device_complete_events = brief ? nullptr : &done,
            .execute_device = runs_portable() ? devices_[device] : nullptr);
  for (size_t i = 0; i < outputs.size(); ++i) {
    results[i].reset(outputs[i]);
  }
  if (!brief) in_flight_[device].push(Event(done));
}

void Client::wait_for_all(int device) { in_flight_[device].wait_for_all(); }

size_t Client::num_outputs(PJRT_LoadedExecutable* loaded) {
  const Executable executable = executable_of(loaded);
  return PJRT_CALL(PJRT_Executable_NumOutputs, .executable = executable.get()).num_outputs;
}

void await(PJRT_Buffer* buffer) {
  const Event ready = ready_event(buffer);
  PJRT_CALL(PJRT_Event_Await, .event = ready.get());
}

bool is_ready(PJRT_Buffer* buffer) {
  const Event ready = ready_event(buffer);
  return PJRT_CALL(PJRT_Event_IsReady, .event = ready.get()).is_ready;
}

size_t on_device_bytes(PJRT_Buffer* buffer) {
  return PJRT_CALL(PJRT_Buffer_OnDeviceSizeInBytes, .buffer = buffer).on_device_size_in_bytes;
}

PJRT_Buffer_Type buffer_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::ScalarType::Bool:
      return PJRT_Buffer_Type_PRED;
    case at::ScalarType::Char:
      return PJRT_Buffer_Type_S8;
    case at::ScalarType::Short:
      return PJRT_Buffer_Type_S16;
    case at::ScalarType::Int:
      return PJRT_Buffer_Type_S32;
    case at::ScalarType::Long:
      return PJRT_Buffer_Type_S64;
    case at::ScalarType::Byte:
      return PJRT_Buffer_Type_U8;
    case at::ScalarType::UInt16:
      return PJRT_Buffer_Type_U16;
    case at::ScalarType::UInt32:
      return PJRT_Buffer_Type_U32;
    case at::ScalarType::UInt64:
      return PJRT_Buffer_Type_U64;
    case at::ScalarType::Half:
      return PJRT_Buffer_Type_F16;
    case at::ScalarType::BFloat16:
      return PJRT_Buffer_Type_BF16;
    case at::ScalarType::Float:
      return PJRT_Buffer_Type_F32;
    case at::ScalarType::Double:
      return PJRT_Buffer_Type_F64;
    case at::ScalarType::ComplexFloat:
      return PJRT_Buffer_Type_C64;
    case at::ScalarType::ComplexDouble:
      return PJRT_Buffer_Type_C128;
    case at::ScalarType::Float8_e5m2:
      return PJRT_Buffer_Type_F8E5M2;
    case at::ScalarType::Float8_e4m3fn:
      return PJRT_Buffer_Type_F8E4M3FN;
    case at::ScalarType::Float8_e5m2fnuz:
      return PJRT_Buffer_Type_F8E5M2FNUZ;
    case at::ScalarType::Float8_e4m3fnuz:
      return PJRT_Buffer_Type_F8E4M3FNUZ;
    case at::ScalarType::Float8_e8m0fnu:
      return PJRT_Buffer_Type_F8E8M0FNU;
    default:
      break;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, "tpu: a device buffer cannot hold ", c10::toString(dtype),
                              ".\nConvert it to another dtype first.");
}

}  // namespace torch_tpu::pjrt
