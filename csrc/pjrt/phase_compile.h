// What the ahead-of-time check asks of a compiler beside compile_for(): the devices of a
// topology, the first phase of a compilation alone, and what is known of an executable.
// Nothing here needs a client or a device. The plugin must be loaded. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "pjrt/pjrt.h"

namespace torch_tpu::pjrt {

struct TargetDevice {
  std::string kind;                           // "TPU v6 lite"
  std::map<std::string, int64_t> attributes;  // "num_cores", "device_memory_bytes_limit"
};
std::vector<TargetDevice> devices_of(PJRT_TopologyDescription* topology);

// True if the plugin has the PhaseCompile extension in the form that is declared here.
bool has_phases();

// Runs one phase of the compilation of a StableHLO module ("phase1_hlo_opts": partitioning, HLO passes,
// schedule, buffer assignment and the out-of-memory verdict, without code generation). Each result is a
// serialized PjRtPartialProgramProto. REQUIRES: has_phases(). The plugin keeps the results' memory until the process
// ends.
std::vector<std::string> run_phase(PJRT_TopologyDescription* topology, std::string_view module,
                                   const Client::CompileOptions& options, std::string_view phase);

// The compiled program, and PJRT's name of its format ("hlo", "hlo_with_config").
struct OptimizedProgram {
  std::string format, bytes;
};
OptimizedProgram optimized_program(PJRT_Executable* executable);

// In bytes a device: "argument", "output", "alias", "temp", "code", "peak".
std::map<std::string, int64_t> memory_of(PJRT_Executable* executable);

}  // namespace torch_tpu::pjrt
