// The PhaseCompile extension (PJRT extension type 9) is younger than the header this is built with,
// so its structs are declared here as the interface defines them.
#include "pjrt/phase_compile.h"

#include <c10/util/Exception.h>

#include "pjrt/call.h"

namespace torch_tpu::pjrt {
namespace {

constexpr int kPhaseCompileType = 9;

struct GetCompilerArgs {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const void* compiler;  // out
};
struct DestroyCompilerArgs {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const void* compiler;
};
struct RunPhaseArgs {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const void* compiler;
  const char** programs;
  const size_t* program_sizes;
  size_t num_programs;
  const char** phases;
  const size_t* phase_sizes;
  size_t num_phases;
  const char* options;
  size_t options_size;
  PJRT_TopologyDescription* topology;
  const char** results;        // out
  const size_t* result_sizes;  // out
  size_t num_results;          // out
};
// The functions that are used, in their order; later ones follow.
struct PhaseCompileExtension {
  PJRT_Extension_Base base;
  PJRT_Error* (*get_compiler)(GetCompilerArgs*);
  void (*destroy_compiler)(DestroyCompilerArgs*);
  PJRT_Error* (*run_phases)(RunPhaseArgs*);
  PJRT_Error* (*phase_names)(void*);
};

const PhaseCompileExtension* extension() {
  TORCH_CHECK(api() != nullptr, "tpu: no PJRT plugin is loaded, so there is no compiler.");
  for (const PJRT_Extension_Base* e = api()->extension_start; e != nullptr; e = e->next) {
    if (static_cast<int>(e->type) == kPhaseCompileType && e->struct_size >= sizeof(PhaseCompileExtension)) {
      return reinterpret_cast<const PhaseCompileExtension*>(e);
    }
  }
  return nullptr;
}

// A field of bytes in a protocol buffer.
void put(std::string& text, int field, std::string_view value) {
  constexpr int kBytes = 2;
  text += static_cast<char>(field << 3 | kBytes);
  for (size_t n = value.size();; n >>= 7) {
    text += static_cast<char>(n < 0x80 ? n : (n | 0x80));
    if (n < 0x80) break;
  }
  text += value;
}

// PjRtPartialProgramProto.
constexpr int kProgram = 1;
constexpr int kFormat = 2;
constexpr int kConsumerPhases = 4;

// Owns a phase compiler while it is used.
struct Compiler {
  explicit Compiler(const PhaseCompileExtension* e) : extension(e) {
    GetCompilerArgs args{sizeof(GetCompilerArgs), nullptr, nullptr};
    if (PJRT_Error* error = e->get_compiler(&args)) throw_error("PJRT_PhaseCompile_Get_Compiler", error);
    compiler = args.compiler;
  }
  ~Compiler() {
    DestroyCompilerArgs args{sizeof(DestroyCompilerArgs), nullptr, compiler};
    extension->destroy_compiler(&args);
  }
  Compiler(const Compiler&) = delete;
  Compiler& operator=(const Compiler&) = delete;
  const PhaseCompileExtension* extension;
  const void* compiler = nullptr;
};

}  // namespace

std::vector<TargetDevice> devices_of(PJRT_TopologyDescription* topology) {
  const auto found = PJRT_CALL(PJRT_TopologyDescription_GetDeviceDescriptions, .topology = topology);
  std::vector<TargetDevice> devices;
  for (size_t i = 0; i < found.num_descriptions; ++i) {
    PJRT_DeviceDescription* description = found.descriptions[i];
    const auto kind = PJRT_CALL(PJRT_DeviceDescription_Kind, .device_description = description);
    TargetDevice device{std::string(kind.device_kind, kind.device_kind_size), {}};
    const auto given = PJRT_CALL(PJRT_DeviceDescription_Attributes, .device_description = description);
    for (size_t k = 0; k < given.num_attributes; ++k) {
      const PJRT_NamedValue& value = given.attributes[k];
      if (value.type == PJRT_NamedValue_kInt64) {
        device.attributes[std::string(value.name, value.name_size)] = value.int64_value;
      }
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

bool has_phases() { return extension() != nullptr; }

std::vector<std::string> run_phase(PJRT_TopologyDescription* topology, std::string_view module,
                                   const Client::CompileOptions& options, std::string_view phase) {
  const PhaseCompileExtension* e = extension();
  TORCH_CHECK(e != nullptr, "tpu: the loaded PJRT plugin cannot run a phase alone.\nCompile in full.");
  std::string program;
  put(program, kProgram, module);
  put(program, kFormat, "mlir");
  put(program, kConsumerPhases, phase);
  const std::string name(phase);
  const std::string encoded = Client::encode(options);
  const Compiler compiler(e);
  const char* programs[] = {program.data()};
  const size_t program_sizes[] = {program.size()};
  const char* phases[] = {name.c_str()};
  const size_t phase_sizes[] = {name.size()};
  RunPhaseArgs args{};
  args.struct_size = sizeof(RunPhaseArgs);
  args.compiler = compiler.compiler;
  args.programs = programs;
  args.program_sizes = program_sizes;
  args.num_programs = 1;
  args.phases = phases;
  args.phase_sizes = phase_sizes;
  args.num_phases = 1;
  args.options = encoded.data();
  args.options_size = encoded.size();
  args.topology = topology;
  if (PJRT_Error* error = e->run_phases(&args)) throw_error("PJRT_PhaseCompile_Run_Phase", error);
  std::vector<std::string> results;
  for (size_t i = 0; i < args.num_results; ++i) results.emplace_back(args.results[i], args.result_sizes[i]);
  return results;
}

OptimizedProgram optimized_program(PJRT_Executable* executable) {
  PJRT_Program program{};
  program.struct_size = PJRT_Program_STRUCT_SIZE;
  PJRT_CALL(PJRT_Executable_OptimizedProgram, .executable = executable, .program = &program);
  OptimizedProgram result;
  result.bytes.resize(program.code_size);
  program.code = result.bytes.data();
  PJRT_CALL(PJRT_Executable_OptimizedProgram, .executable = executable, .program = &program);
  result.format.assign(program.format, program.format_size);
  return result;
}

std::map<std::string, int64_t> memory_of(PJRT_Executable* executable) {
  const auto stats = PJRT_CALL(PJRT_Executable_GetCompiledMemoryStats, .executable = executable);
  return {{"argument", stats.argument_size_in_bytes},   {"output", stats.output_size_in_bytes},
          {"alias", stats.alias_size_in_bytes},         {"temp", stats.temp_size_in_bytes},
          {"code", stats.generated_code_size_in_bytes}, {"peak", stats.peak_memory_in_bytes}};
}

}  // namespace torch_tpu::pjrt
