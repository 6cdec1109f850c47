// PJRT_CALL: the one way this folder calls the PJRT C API.
// It fills struct_size, checks that the plugin has the function (it may be older than the
// header), turns an error into a C++ exception, and returns the args struct with its outputs.
#pragma once

#include <cstddef>
#include <string>

#include "pjrt/pjrt.h"

// PJRT_CALL(PJRT_Event_Await, .event = e): the fields in the order of the args struct.
#define PJRT_CALL(Function, ...)                                                                        \
  ::torch_tpu::pjrt::call(&PJRT_Api::Function, offsetof(PJRT_Api, Function) + sizeof(void*), #Function, \
                          Function##_Args{.struct_size = Function##_Args_STRUCT_SIZE __VA_OPT__(, ) __VA_ARGS__})

namespace torch_tpu::pjrt {

// Consumes `error`. Throws c10::OutOfMemoryError for RESOURCE_EXHAUSTED,
// c10::NotImplementedError for UNIMPLEMENTED, c10::Error for the rest, each with
// `tpu: <function> failed: <PJRT's text>`.
[[noreturn]] void throw_error(const char* function, PJRT_Error* error);
[[noreturn]] void throw_missing(const char* function);

// Consumes `error`: PJRT's text, whole.
std::string take_message(PJRT_Error* error);

// True if the loaded plugin is libtpu, whether or not there is a TPU (plugin.cpp).
bool compiles_for_tpu();

// True if the loaded plugin has the function whose entry ends at `end` of the table.
inline bool has_function(const PJRT_Api* table, size_t end) { return end <= table->struct_size; }

template <typename Args>
Args call(PJRT_Error* (*PJRT_Api::*member)(Args*), size_t end, const char* function, Args args) {
  const PJRT_Api* table = api();
  if (!has_function(table, end) || table->*member == nullptr) {
    throw_missing(function);
  }
  if (PJRT_Error* error = (table->*member)(&args)) {
    throw_error(function, error);
  }
  return args;
}

}  // namespace torch_tpu::pjrt
