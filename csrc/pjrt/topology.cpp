// Compiling for a device that is not here: a topology is described by name, and the plugin's
// compiler needs nothing else. The plugin must be loaded; no client is created.
#include <c10/util/Exception.h>

#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "pjrt/call.h"

namespace torch_tpu::pjrt {
namespace {

// The integers of "[2,2,1]"; nullopt if `text` is anything else.
std::optional<std::vector<int64_t>> integers(std::string_view text) {
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') {
    return std::nullopt;
  }
  std::vector<int64_t> numbers;
  const char* at = text.data() + 1;
  const char* const end = text.data() + text.size() - 1;
  while (at < end) {
    int64_t number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc() || (next != end && *next != ',')) {
      return std::nullopt;
    }
    numbers.push_back(number);
    at = next == end ? end : next + 1;
  }
  return numbers;
}

std::optional<int64_t> integer(std::string_view text) {
  int64_t number = 0;
  const auto [next, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || next != text.data() + text.size()) {
    return std::nullopt;
  }
  return number;
}

}  // namespace

TopologyDescription topology(const std::string& name, const std::vector<std::pair<std::string, std::string>>& options) {
  // PJRT refuses an option of another type than it expects: the text says which one is meant.
  std::vector<PJRT_NamedValue> values;
  std::vector<std::vector<int64_t>> lists;
  values.reserve(options.size());
  lists.reserve(options.size());
  for (const auto& [key, text] : options) {
    PJRT_NamedValue& value = values.emplace_back();
    value.struct_size = PJRT_NamedValue_STRUCT_SIZE;
    value.name = key.data();
    value.name_size = key.size();
    value.value_size = 1;
    if (auto list = integers(text)) {
      lists.push_back(*std::move(list));
      value.type = PJRT_NamedValue_kInt64List;
      value.int64_array_value = lists.back().data();
      value.value_size = lists.back().size();
    } else if (const auto number = integer(text)) {
      value.type = PJRT_NamedValue_kInt64;
      value.int64_value = *number;
    } else if (text == "true" || text == "false") {
      value.type = PJRT_NamedValue_kBool;
      value.bool_value = text == "true";
    } else {
      value.type = PJRT_NamedValue_kString;
      value.string_value = text.data();
      value.value_size = text.size();
    }
  }
  TORCH_CHECK(api() != nullptr, "tpu: no PJRT plugin is loaded, so there is no compiler for ", name, ".");
  return TopologyDescription(PJRT_CALL(PJRT_TopologyDescription_Create, .topology_name = name.data(),
                                       .topology_name_size = name.size(), .create_options = values.data(),
                                       .num_options = values.size())
                                 .topology);
}

Executable compile_for(PJRT_TopologyDescription* topology, std::string_view module,
                       const Client::CompileOptions& options) {
  constexpr std::string_view format = "mlir";
  PJRT_Program program{};
  program.struct_size = PJRT_Program_STRUCT_SIZE;
  program.code = const_cast<char*>(module.data());
  program.code_size = module.size();
  program.format = format.data();
  program.format_size = format.size();
  const std::string encoded = Client::encode(options);
  return Executable(PJRT_CALL(PJRT_Compile, .topology = topology, .program = &program,
                              .compile_options = encoded.data(), .compile_options_size = encoded.size())
                        .executable);
}

std::string serialize(PJRT_Executable* executable) {
  const auto args = PJRT_CALL(PJRT_Executable_Serialize, .executable = executable);
  std::string bytes(args.serialized_bytes, args.serialized_bytes_size);
  args.serialized_executable_deleter(args.serialized_executable);
  return bytes;
}

}  // namespace torch_tpu::pjrt
