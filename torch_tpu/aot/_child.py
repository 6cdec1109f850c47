"""The process that loads libtpu: ``python -m torch_tpu.aot._child FD``.

libtpu may abort, takes a lock, catches signals and logs to stderr, so it lives here, away from the user's program.
Answers requests (dicts) from the connection FD until it closes: each reply is a dict too, with ``error`` if it failed.
"""

import os
import sys
import time
from multiprocessing.connection import Connection

PHASE = "phase1_hlo_opts"


def _describe(_C, request: dict) -> dict:
    topology = _C.Topology(request["topology"], request["options"])
    return {"devices": topology.devices(), "has_phases": _C.has_phases()}


def _compile(_C, request: dict) -> dict:
    topology = _C.Topology(request["topology"], request["options"])
    start = time.monotonic()
    reply = {"depth": request["depth"]}
    if request["depth"] == "quick":
        reply["programs"] = topology.run_phase(request["module"], PHASE, request["partitions"], request["flags"])
    else:
        reply["format"], reply["program"], reply["memory"] = topology.compile(
            request["module"], request["partitions"], request["flags"]
        )
    reply["seconds"] = time.monotonic() - start
    return reply


def main() -> None:
    connection = Connection(int(sys.argv[1]))
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)

    import torch_tpu  # noqa: F401
    from torch_tpu import _C, _plugins

    verbs = {"describe": _describe, "compile": _compile}
    loaded = False
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        try:
            if not loaded:
                _C.load_plugin(os.environ.get("TORCH_TPU_AOT_PLUGIN") or _plugins.installed(_plugins.TPU_PLUGINS)[0])
                loaded = True
            reply = verbs[request["verb"]](_C, request)
        except Exception as error:  # goes to the parent, which raises it
            reply = {"error": str(error), "type": type(error).__name__}
        connection.send(reply)


if __name__ == "__main__":
    main()
