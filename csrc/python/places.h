// Where the user's Python is when a call is made under torch_tpu.aot, or a tensor while its memory is looked at: the
// module that runs and the lines that led there; for a derivative, those of the call that it derives. Guarded by the
// GIL.
#pragma once

#include <string>
#include <string_view>

#include "exec/abstract.h"

namespace torch_tpu {

// Hands these to the Abstract policy.
void install_places();
// This moment's place, as a number: -1 without Python. Takes the GIL. And what it stands for.
int place_here();
const Place& place_of(int id);
// Forgets all places, unless they are kept. REQUIRES: the GIL, and that no session is active.
void clear_places();
void keep_places(bool keep);
// The module that runs on this thread: a stack of qualified names.
void enter_scope(const std::string& name);
void leave_scope();

// False for PyTorch's code, this package's, that of Python's own library, and generated code. REQUIRES: the GIL.
bool is_users_code(std::string_view file);

}  // namespace torch_tpu
