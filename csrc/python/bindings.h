// The parts of the extension module that have a file of their own.
#pragma once

#include <pybind11/pybind11.h>

namespace torch_tpu {

void bind_abstract(pybind11::module_& m);
void bind_aot(pybind11::module_& m);
void bind_benchmark(pybind11::module_& m);
void bind_cache(pybind11::module_& m);
void bind_compile(pybind11::module_& m);
void bind_device(pybind11::module_& m);
void bind_journal(pybind11::module_& m);
void bind_memory(pybind11::module_& m);

}  // namespace torch_tpu
