#include "python/places.h"

#include <ATen/SequenceNumber.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/function.h>

#include <array>
#include <deque>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "exec/abstract.h"

namespace py = pybind11;

namespace torch_tpu {

namespace {

constexpr size_t kMaxFrames = 24;
// A derivative of what was called so many calls ago has no place.
constexpr size_t kMaxNodes = size_t{1} << 20;

thread_local std::vector<std::string> scopes;

// A place's frames as Python has them, innermost first; code objects are kept alive by the table.
struct Key {
  std::string scope;
  std::vector<std::pair<PyCodeObject*, int>> frames;
  bool backward = false;
  bool operator<(const Key& other) const {
    return std::tie(scope, frames, backward) < std::tie(other.scope, other.frames, other.backward);
  }
};

struct Places {
  std::map<Key, int> ids;
  std::deque<Place> places;                       // by id; references stay valid
  std::deque<const Key*> keys;                    // by id
  std::unordered_map<uint64_t, int> of_sequence;  // autograd's number of a call -> id
  bool kept = false;
};

Places& known() {
  static auto* t = new Places();
  return *t;
}

std::string text(PyObject* object) { return py::cast<std::string>(py::handle(object)); }

std::string folder_of(const char* module) {
  const std::string file = py::cast<std::string>(py::module_::import(module).attr("__file__"));
  return file.substr(0, file.rfind('/') + 1);
}

Key frames_here() {
  Key key;
  PyFrameObject* frame = PyEval_GetFrame();  // borrowed
  Py_XINCREF(frame);
  while (frame != nullptr) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    if (key.frames.size() < kMaxFrames && is_users_code(text(code->co_filename))) {
      key.frames.emplace_back(code, PyFrame_GetLineNumber(frame));
    }
    Py_DECREF(code);  // the frame, and then the table, keep it
    PyFrameObject* back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  return key;
}

int intern(Key key) {
  Places& t = known();
  const auto [it, inserted] = t.ids.emplace(std::move(key), static_cast<int>(t.places.size()));
  if (!inserted) return it->second;
  Place place;
  place.scope = it->first.scope;
  place.backward = it->first.backward;
  for (const auto& [code, line] : it->first.frames) {
    Py_INCREF(code);
    place.frames.push_back({text(code->co_qualname), text(code->co_filename), line});
  }
  t.places.push_back(std::move(place));
  t.keys.push_back(&it->first);
  return it->second;
}

}  // namespace

int place_here() {
  if (!Py_IsInitialized()) return -1;
  const auto node = torch::autograd::get_current_node();
  const py::gil_scoped_acquire gil;
  Places& t = known();
  Key key = frames_here();
  if (node && key.frames.empty()) {
    const auto found = t.of_sequence.find(node->sequence_nr());
    if (found == t.of_sequence.end()) return -1;
    Key derived = *t.keys[found->second];
    derived.backward = true;
    return intern(std::move(derived));
  }
  if (!scopes.empty()) key.scope = scopes.back();
  const int id = intern(std::move(key));
  // The node that autograd made for this call has the number before the next. The first call after it counts.
  if (const uint64_t next = at::sequence_number::peek(); next > 0) {
    if (t.of_sequence.size() >= kMaxNodes) t.of_sequence.clear();
    t.of_sequence.emplace(next - 1, id);
  }
  return id;
}

const Place& place_of(int id) { return known().places[id]; }

bool is_users_code(std::string_view file) {
  static const auto* folders =
      new std::array<std::string, 3>{folder_of("torch"), folder_of("torch_tpu"), folder_of("os")};
  const auto starts_with = [file](std::string_view start) { return file.substr(0, start.size()) == start; };
  if (starts_with((*folders)[0]) || starts_with((*folders)[1])) return false;
  if (starts_with("<frozen") || starts_with("<eval_with_key>")) return false;
  return !starts_with((*folders)[2]) || file.find("-packages/") != std::string_view::npos;
}

void install_places() { AbstractSession::set_places(&place_here, &place_of); }

void keep_places(bool keep) { known().kept = keep; }

void clear_places() {
  Places& t = known();
  if (t.kept) return;
  for (const auto& [key, id] : t.ids) {
    for (const auto& [code, line] : key.frames) Py_DECREF(code);
  }
  t = Places();
}

void enter_scope(const std::string& name) { scopes.push_back(name); }

void leave_scope() {
  if (!scopes.empty()) scopes.pop_back();
}

}  // namespace torch_tpu
