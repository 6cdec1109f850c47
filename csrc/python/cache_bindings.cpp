// Bindings of the compile cache's folder, for `torch-tpu cache`: entries are read here, in one place, also where
// they come from a bundle.
#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "cache/disk.h"
#include "cache/entry.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace torch_tpu {

namespace {

py::list to_python(const KeyParts& parts) {
  py::list list;
  for (const KeyPart& part : parts) list.append(py::make_tuple(part.name, part.value));
  return list;
}

py::dict settings() {
  const DiskSettings s = disk_settings();
  py::dict found;
  found["folder"] = s.folder;
  found["off"] = s.off;
  found["overlay"] = s.overlay;
  found["limit"] = s.limit;
  return found;
}

py::list entries(const std::string& folder) {
  py::list list;
  for (const Folder::File& file : Folder(folder).list()) {
    py::dict d;
    d["digest"] = file.digest;
    d["path"] = Folder(folder).file(file.digest);
    d["bytes"] = file.bytes;
    d["made"] = file.made;
    d["used"] = file.used;
    list.append(d);
  }
  return list;
}

// What an entry says of itself, after all its checks. ValueError says what is wrong with it.
py::dict read(const py::bytes& bytes) {
  const Entry entry = read_entry(std::string_view(bytes));
  py::dict d;
  d["digest"] = digest(entry.parts);
  d["parts"] = to_python(entry.parts);
  d["compile_seconds"] = static_cast<double>(entry.compile_microseconds) * 1e-6;
  d["executable_bytes"] = entry.executable.size();
  return d;
}

void write(const std::string& folder, const py::bytes& bytes) {
  const std::string text(bytes);
  const std::string name = digest(read_entry(text).parts);
  const std::string wrong = Folder(folder).prepare();
  TORCH_CHECK(wrong.empty(), "tpu: the compile cache's folder ", folder, " is not used: ", wrong, ".");
  Folder(folder).write(name, text);
}

// Why the plugin's programs cannot be kept; empty if they can.
std::string probe() {
  try {
    auto& client = pjrt::Client::get();
    const auto executable =
        client.compile("func.func public @main(%0: tensor<f32>) -> tensor<f32> {\n  return %0 : tensor<f32>\n}\n", {});
    client.deserialize(client.serialize(executable.get()));
    return {};
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
}

}  // namespace

void bind_cache(py::module_& m) {
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  m.def("cache_settings", &settings);
  m.def("cache_entries", &entries);
  m.def("cache_read", &read);
  m.def("cache_write", &write);
  m.def("cache_prune", [](const std::string& folder, int64_t limit) { return Folder(folder).prune(limit); }, unlocked);
  m.def("cache_probe", &probe, unlocked);
  m.def("cache_process_parts", [] { return to_python(process_parts()); });
  m.def("cache_drain", [] { DiskCache::get().drain(); }, unlocked);
  m.def("cache_finish", &DiskCache::finish, unlocked);
}

}  // namespace torch_tpu
