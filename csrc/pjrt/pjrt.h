// The PJRT C API in C++: one call macro, owners, and the few verbs the backend needs.
// The only folder that includes the PJRT header. Errors become C++ exceptions that keep
// PJRT's text behind the function's name. Everything here is thread-safe unless it says
// otherwise: PJRT clients are.
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pjrt_c_api.h"
#include "stablehlo/type.h"

namespace torch_tpu::pjrt {

// The api of the loaded plugin. Set once by load_plugin(). REQUIRES: a plugin is loaded.
const PJRT_Api* api();

// PJRT_CALL(PJRT_Event_Await, .event = e): fills struct_size, checks that the plugin has the
// function (it may be older than our header), throws on an error, returns the args struct.
// Defined in pjrt/call.h.

#define TORCH_TPU_PJRT_OWNER(Name)                                           \
  struct Name##Deleter {                                                     \
    void operator()(PJRT_##Name* p) const noexcept; /* logs, never throws */ \
  };                                                                         \
  using Name = std::unique_ptr<PJRT_##Name, Name##Deleter>
TORCH_TPU_PJRT_OWNER(Buffer);
TORCH_TPU_PJRT_OWNER(Event);
TORCH_TPU_PJRT_OWNER(LoadedExecutable);
TORCH_TPU_PJRT_OWNER(TopologyDescription);
TORCH_TPU_PJRT_OWNER(Executable);
#undef TORCH_TPU_PJRT_OWNER

// --- plugin (plugin.cpp)
enum class PluginKind { kCpu, kTpu };
struct PluginChoice {
  std::string path;
  PluginKind kind;
};
// Which plugin this process uses, found without loading it (so cheap and safe at import):
// TORCH_TPU_PJRT_PLUGIN (a path), else libtpu where there is a TPU, else a CPU plugin from the
// candidates that Python found. nullopt: none is installed.
std::optional<PluginChoice> choose_plugin();
// Paths of installed plugins, set by Python before the first use (importing nothing heavy).
void set_plugin_candidates(std::vector<std::string> cpu, std::vector<std::string> tpu);
// True if this machine seems to have a TPU: /dev/accel*, /dev/vfio/N, or the TPU environment.
bool has_tpu();
// dlopen, version check, PJRT_Plugin_Initialize. Throws a RuntimeError of one sentence and what
// to do if it is missing, does not load, is too old, or is held by another process.
const PJRT_Api* load_plugin(const std::string& path);

class InFlight;  // in_flight.h

// --- client (client.cpp): created at first use, never destroyed
class Client {
 public:
  static Client& get();  // throws as load_plugin does; again at each call
  static bool is_created();

  PluginKind kind() const { return kind_; }
  const std::string& plugin_path() const { return path_; }
  const std::string& platform() const { return platform_; }  // PJRT's name: "cpu", "tpu"
  const std::string& version() const { return version_; }    // PJRT's platform version
  int device_count() const { return static_cast<int>(devices_.size()); }
  std::string device_kind(int device) const;
  // PJRT's statistics in bytes ("bytes_in_use", ...); empty where the plugin has none.
  std::map<std::string, int64_t> memory_stats(int device) const;

  // Copies `data` (dense, row-major) during the call: the caller may change it afterwards.
  Buffer from_host(const void* data, const Type& type, int device);
  // Waits, and copies into `data`, which has `nbytes`, dense and row-major. Nothing to do for 0 bytes.
  void to_host(PJRT_Buffer* buffer, void* data, size_t nbytes);
  Buffer copy_to_device(PJRT_Buffer* buffer, int device);

  // Compiles a StableHLO module. One replica; with one partition it runs on any device of the client.
  // fast: least compile effort: about a third of the time for a small program, which then runs some
  // ten times slower an element, so it pays where operands have a few thousand elements at most.
  // partitions: more than one makes an SPMD program of as many devices. shardy: the module says how in the dialect
  // sdy, as JAX's do, not by mhlo.sharding. flags: XLA's, by name.
  struct CompileOptions {
    bool fast = false;
    int partitions = 1;
    bool shardy = false;
    std::vector<std::pair<std::string, std::string>> flags = {};
  };
  LoadedExecutable compile(std::string_view module, const CompileOptions& options);
  std::string serialize(PJRT_LoadedExecutable* executable);
  LoadedExecutable deserialize(std::string_view bytes);
  // Queues one execution. Donation is asked for in the module (tf.aliasing_output) and refused here for
  // the arguments at the positions `not_donated`. `results` becomes num_outputs() buffers: a vector that
  // has that size already (REQUIRES: that size or none) saves asking PJRT for the number. `brief`: takes microseconds,
  // so that wait_for_all() may leave it out; to have its completion would take a tenth of that again.
  void execute(PJRT_LoadedExecutable* executable, c10::ArrayRef<PJRT_Buffer*> arguments,
               c10::ArrayRef<int64_t> not_donated, std::vector<Buffer>& results, int device, bool brief = false);
  // Waits until all that was queued on the device is done, but for brief programs; throws what a program threw.
  void wait_for_all(int device);
  size_t num_outputs(PJRT_LoadedExecutable* executable);

  // Whether programs are compiled for whichever device they are given. On the CPU plugin's only device they are not, as
  // telling a program its device takes half a microsecond.
  bool runs_portable() const { return kind_ != PluginKind::kCpu || devices_.size() > 1; }

  // The serialized CompileOptionsProto of `options` for the loaded plugin (part of the disk cache's key).
  static std::string encode(const CompileOptions& options);

 private:
  Client();
  PluginKind kind_;
  std::string path_, platform_, version_;
  PJRT_Client* client_ = nullptr;
  std::vector<PJRT_Device*> devices_;
  std::unique_ptr<InFlight[]> in_flight_;  // by device
};

// What was compiled, apart from the devices it runs on; it may outlive `loaded`.
Executable executable_of(PJRT_LoadedExecutable* loaded);

// Bytes that an execution takes beside arguments and results; 0 where the plugin does not say.
int64_t scratch_bytes(PJRT_LoadedExecutable* loaded);

// Waits until `buffer` is computed; throws what its program threw.
void await(PJRT_Buffer* buffer);
bool is_ready(PJRT_Buffer* buffer);
size_t on_device_bytes(PJRT_Buffer* buffer);

// --- ahead of time (topology.cpp): compile for a device that is not here
// `name` as libtpu takes it, "v6e:2x2". The plugin at `plugin` must be loaded.
TopologyDescription topology(const std::string& name,
                             const std::vector<std::pair<std::string, std::string>>& options = {});
Executable compile_for(PJRT_TopologyDescription* topology, std::string_view module,
                       const Client::CompileOptions& options);
std::string serialize(PJRT_Executable* executable);

PJRT_Buffer_Type buffer_type(at::ScalarType dtype);

}  // namespace torch_tpu::pjrt
