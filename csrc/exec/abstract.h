// The policy Abstract (torch_tpu.aot): nothing executes. The calls of every thread are recorded, on
// values that have a type and no data. Where DeferAndFuse would run a program, the program is kept
// instead: its text once, and how often it came. Each call carries the user's Python lines into the text.
// One session a process. Thread-safe; takes no Python lock while it holds its own.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/key.h"
#include "exec/program.h"

namespace torch_tpu {

// Where the user's Python was when a call was made.
struct Place {
  struct Frame {
    std::string function, file;
    int line = 0;
  };
  std::string scope;          // the module that was running: "model.layers.0.mlp"
  std::vector<Frame> frames;  // innermost first
  bool backward = false;      // a derivative of what was called there
};

class AbstractSession {
 public:
  // An argument or a result of a program.
  struct Argument {
    Type type;
    std::string name;  // of the parameter it is the value of; empty if none is known
    bool donated = false;
    int64_t stacked = 0;  // arrays that it is a stack of, named "model.layers.*.weight"; 0: it is none
  };
  // A loop that stands for calls that came again and again.
  struct RolledLoop {
    int64_t calls, times;
  };
  // A program that would have run.
  struct Captured {
    std::string module;
    std::vector<Argument> arguments;  // the packs of numbers, which follow them, are left out
    std::vector<Argument> results;
    std::map<std::string, std::map<std::string, int64_t>> rows;  // row -> place ("train.py:12") -> calls
    std::vector<RolledLoop> loops;
    KeyParts parts;              // its calls, inputs and results for people, as of a program that runs
    std::string ended_by;        // what would have run it, the first time
    int64_t resident_bytes = 0;  // of values that were alive beside the program's own, at most
    int64_t host_bytes = 0;      // sent from the host since the program before, at most
  };
  // Something that a TPU would not do by itself: a value read by the host, an op without a row.
  struct Finding {
    std::string kind, what, where;
    int64_t count = 0;
  };
  // What a read of the host gets: `found` false makes it an error.
  struct Assumed {
    bool found = false;
    double value = 0;
  };
  using Assume = std::function<Assumed(const Type& type, const std::string& where)>;

  // Begins the process's session. Throws if there is one. In programs of at least roll_from calls, layers that repeat
  // become loops.
  static void begin(Assume assume, int64_t roll_from);
  // What it captured: the programs, and which of them each run was of, in their order.
  struct Programs {
    std::vector<Captured> captured;
    std::vector<size_t> runs;
  };
  // Ends it: what is pending becomes a program.
  static Programs end();
  static AbstractSession* active();

  void add(Submission& submission, DeviceValues& outputs);
  // A value from outside the program, such as the copy of a host tensor.
  DeviceValuePtr input(const Type& type, int device, bool from_host);
  // Ends the program, as a sync point would.
  void cut(const std::string& why);
  // Calls that come while a value of this name is an argument's show it.
  void name(const DeviceValuePtr& value, const std::string& name);
  // The host reads a value: what stands for its elements. A sync point.
  double read(const Type& type);
  // An op that would run on the host.
  void unsupported(const std::string& op, const std::string& what);

  // How many programs would have run so far, each time that one came again counted.
  size_t runs();
  std::vector<Finding> findings();

  // Gives this moment's place an id; -1 without Python. And the place of an id. Set once by the Python layer.
  static void set_places(int (*here)(), const Place& (*place)(int));

 private:
  AbstractSession(Assume assume, int64_t roll_from) : program_(0), assume_(std::move(assume)), roll_from_(roll_from) {}
  void cut_locked(const std::string& why);
  void write_locked(const Program::Plan& plan, Captured& captured) const;
  std::string name_locked(const DeviceValuePtr& value) const;
  void find_locked(const std::string& kind, const std::string& what, const std::string& where);

  std::mutex lock_;  // guards all below
  Program program_;
  std::vector<int> places_;  // by call of program_
  int64_t host_bytes_ = 0;
  std::vector<c10::weak_intrusive_ptr<DeviceValue>> alive_;  // values that earlier programs made, or the host sent
  struct Name {
    c10::weak_intrusive_ptr<DeviceValue> value;  // keeps the address from being used again
    std::string text;
  };
  std::unordered_map<const DeviceValue*, Name> names_;
  Programs programs_;
  std::unordered_multimap<uint64_t, std::pair<std::vector<int64_t>, size_t>> index_;  // hash -> key, program
  std::vector<Finding> findings_;
  Assume assume_;
  const int64_t roll_from_;
};

}  // namespace torch_tpu
