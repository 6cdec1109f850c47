// What happened lately, for torch_tpu.explain(): flushes, executables made, fallbacks and reads by the host,
// each with the line of the user's Python. Bounded: the oldest go first.
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cache/key.h"

namespace torch_tpu {

struct Event {
  enum class Kind { kFlush, kCompile, kFallback, kHostRead, kCount };
  Kind kind;
  std::string what;    // a flush's cause; where an executable came from; an op; the type of a value read
  std::string where;   // "train.py:12"; empty where no Python runs, as in autograd's threads
  std::string note;    // of a flush: how it ran; of an executable: why the disk had none
  size_t calls = 0;    // of the program
  double seconds = 0;  // of the host
  int64_t count = 1;   // events that are alike, one after the other in one step, are one
  std::shared_ptr<const KeyParts> parts;  // of an executable
  uint64_t number = 0;                    // in the order of all
  int64_t step = 0;                       // steps that had ended before, by end_step()
};

class Journal {
 public:
  // `where` is filled by the next locate() of this thread.
  static void add(Event event);
  // Asks for the line of Python, if this thread has added something since. REQUIRES: no lock is held that a
  // thread with Python's own lock may wait for.
  static void locate();
  static void end_step();
  static int64_t steps();  // that ended
  static std::vector<Event> events();
};

// What its thread adds while it lives has no line of Python: for threads without Python.
struct EventsWithoutPlace {
  EventsWithoutPlace();
  ~EventsWithoutPlace();
};

// Locates what is added while it lives. Declare it before the lock that guards what adds.
struct LocatedEvents {
  ~LocatedEvents() { Journal::locate(); }
};

}  // namespace torch_tpu
