// PJRT errors as C++ exceptions, and the deleters of the owners (which log instead).
#include <c10/util/Exception.h>

#include <cstdio>
#include <string>

#include "pjrt/call.h"

namespace torch_tpu::pjrt {
namespace {

PJRT_Error_Code code_of(const PJRT_Error* error) {
  PJRT_Error_GetCode_Args args{};
  args.struct_size = PJRT_Error_GetCode_Args_STRUCT_SIZE;
  args.error = error;
  if (PJRT_Error* failure = api()->PJRT_Error_GetCode(&args)) {
    take_message(failure);
    return PJRT_Error_Code_UNKNOWN;
  }
  return args.code;
}

}  // namespace

std::string take_message(PJRT_Error* error) {
  PJRT_Error_Message_Args message{};
  message.struct_size = PJRT_Error_Message_Args_STRUCT_SIZE;
  message.error = error;
  api()->PJRT_Error_Message(&message);
  std::string text(message.message, message.message_size);
  PJRT_Error_Destroy_Args destroy{};
  destroy.struct_size = PJRT_Error_Destroy_Args_STRUCT_SIZE;
  destroy.error = error;
  api()->PJRT_Error_Destroy(&destroy);
  return text;
}

void throw_error(const char* function, PJRT_Error* error) {
  const PJRT_Error_Code code = code_of(error);
  const std::string text = take_message(error);
  if (code == PJRT_Error_Code_RESOURCE_EXHAUSTED) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, "tpu: ", function, " failed: ", text);
  }
  if (code == PJRT_Error_Code_UNIMPLEMENTED) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "tpu: ", function, " failed: ", text);
  }
  TORCH_CHECK(false, "tpu: ", function, " failed: ", text);
}

void throw_missing(const char* function) {
  const PJRT_Api_Version& version = api()->pjrt_api_version;
  TORCH_CHECK_NOT_IMPLEMENTED(false, "tpu: the loaded PJRT plugin (API ", version.major_version, ".",
                              version.minor_version, ") has no ", function,
                              ".\nUse a newer plugin: upgrade its package, or set TORCH_TPU_PJRT_PLUGIN to another.");
}

// A destructor must not throw, and a plugin that fails to free something leaves nothing to do.
#define TORCH_TPU_PJRT_DELETER(Name, field)                                                          \
  void Name##Deleter::operator()(PJRT_##Name* p) const noexcept {                                    \
    PJRT_##Name##_Destroy_Args args{};                                                               \
    args.struct_size = PJRT_##Name##_Destroy_Args_STRUCT_SIZE;                                       \
    args.field = p;                                                                                  \
    if (PJRT_Error* error = api()->PJRT_##Name##_Destroy(&args)) {                                   \
      std::fprintf(stderr, "tpu: PJRT_" #Name "_Destroy failed: %s\n", take_message(error).c_str()); \
    }                                                                                                \
  }
TORCH_TPU_PJRT_DELETER(Buffer, buffer)
TORCH_TPU_PJRT_DELETER(Event, event)
TORCH_TPU_PJRT_DELETER(LoadedExecutable, executable)
TORCH_TPU_PJRT_DELETER(TopologyDescription, topology)
TORCH_TPU_PJRT_DELETER(Executable, executable)
#undef TORCH_TPU_PJRT_DELETER

}  // namespace torch_tpu::pjrt
