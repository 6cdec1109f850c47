// Policies decide when calls run, and together with what; never what they mean.
// Strict: one call, one program, run at once (asynchronously). Debug: Strict, then wait and
// check. DeferAndFuse: record, and run at a sync point. Every entry point takes the
// recorder's lock, so calls may come from any thread (autograd has its own).
#pragma once

#include <functional>
#include <string>

#include "exec/program.h"

namespace torch_tpu {

enum class Mode { kStrict, kDebug, kDefer };

Mode mode();
void set_mode(Mode mode);                  // runs what is pending first
Mode mode_named(const std::string& name);  // "strict", "debug", "defer"; ValueError otherwise
std::string name_of(Mode mode);

// Runs or records one call on `device`; one value an output of the signature comes back.
// On an error nothing was written, and the inputs that were not donated are back in `submission`.
void submit(Submission& submission, int device, DeviceValues& outputs);

// Runs what is pending on the device. `cause`: what asks for it, in words for the journal.
void flush(int device, const char* cause);
void flush_all(const char* cause);
// flush_all(), at the end of an optimizer's step.
void end_step();
// flush(), and waits until all that was queued on the device is done.
void synchronize(int device);
// Waits without flush().
void wait_for_queue(int device);
// The buffer of a value, after running the program that makes it if need be. Not awaited.
PJRT_Buffer* buffer_of(const DeviceValuePtr& value, const char* cause = "a value is read by the host");

// Where the user's Python is at this moment ("train.py:12"), for reports; empty without Python.
// Set once by the Python layer.
void set_python_location(std::string (*location)());
std::string python_location();

// Debug mode: also look for NaN and Inf in every result, and report the call that made them.
void set_check_nan(bool check);

}  // namespace torch_tpu
