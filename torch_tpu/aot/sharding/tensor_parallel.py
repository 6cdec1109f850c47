"""Cuts programs as Megatron does: each weight along its output or its input features, attention by heads.

Which of the two is found from the programs (flow.py). Gradients and optimizer state are cut as their parameters, inputs
and what lies between the layers are whole on every device. The partitioner then adds up an activation's parts where a
weight is cut along its input features, and in the backward where one is cut along its output features. Only the
program's text changes: the numbers are those of one device.
"""

import math
import re
from collections import defaultdict
from dataclasses import dataclass, field, replace

from torch_tpu.aot.errors import CheckError
from torch_tpu.aot.recording import Argument, Program
from torch_tpu.aot.sharding.annotate import REPLICATED, Cuts, aliases, cut
from torch_tpu.aot.sharding.cut import Cut
from torch_tpu.aot.sharding.flow import CONSTANT, SMALL, WHOLE, Flow, Found, State, Weight
from torch_tpu.aot.sharding.text import Block, Dims, dims_of, functions_of


@dataclass(frozen=True)
class TensorParallel:
    """How the programs of a recording, which share their weights, are cut. ``notes``: sentences about what is not cut evenly."""

    found: Found
    results: dict[int, list[State]]  # by the program's id
    sums: dict[int, set[str]]
    notes: list[str] = field(default_factory=list)

    def cuts(self, program: Program) -> Cuts:
        arguments = [self._named(a) if a.name else REPLICATED for a in program.arguments]
        states = self.results[id(program)]
        results = [
            self._named(r) if r.name else self._computed(dims_of(r.type), states[i] if i < len(states) else WHOLE)
            for i, r in enumerate(program.results)
        ]
        # What is updated in place, such as a cache of keys, is cut as what it becomes.
        for result, argument in aliases(program.module).items():
            if arguments[argument] == REPLICATED:
                arguments[argument] = results[result]
        return Cuts(arguments, results, narrow_sums=frozenset(self.sums[id(program)]))

    def _named(self, array: Argument) -> str:
        """Of a parameter, or of a gradient or optimizer state of one."""
        name, dims = _parameter(array.name), dims_of(array.type)
        size = self.found.size.get(name, ())
        first = len(dims) - len(size)
        # A bias's gradient may have ones before.
        if name not in self.found.dim or dims[first:] != size or math.prod(_of_one(array)) != math.prod(size):
            return REPLICATED
        return cut(dims, first + self.found.dim[name], self.found.devices, self.found.parts(name))

    def _computed(self, dims: Dims, state: State) -> str:
        if not isinstance(state, Cut):
            return REPLICATED
        pieces = state.pieces(dims)
        parts = min(map(self.found.parts, state.weights), default=1)
        if len(pieces) != 1 or pieces[0].inner * pieces[0].size != dims[pieces[0].dim]:
            return REPLICATED
        return cut(dims, pieces[0].dim, self.found.devices, parts)


def tensor_parallel(programs: list[Program], devices: int) -> TensorParallel:
    """Raises CheckError if there is nothing to cut."""
    functions = [functions_of(p.module) for p in programs]
    sizes = {a.name: _of_one(a) for p in programs for a in p.arguments if a.name}
    heads: set[str] = set()
    found = Found(devices, sizes)
    for program, of_program in zip(programs, functions, strict=True):
        scout = Flow(of_program, found)
        scout.scout(_given(program, of_program))
        heads |= scout.heads
    results, sums = {}, {}
    whole: frozenset[str] = frozenset()
    biases: frozenset[str] = frozenset()
    known = None
    while known != (whole, biases):
        known = whole, biases
        found = Found(devices, sizes, frozenset(heads), whole, biases)
        for program, of_program in zip(programs, functions, strict=True):
            flow = Flow(of_program, found)
            results[id(program)] = flow.run(_given(program, of_program))
            sums[id(program)] = flow.sums
        biases |= found.new_biases
        whole |= next((doubts - whole for doubts in found.doubts if doubts - whole), set())
    if not any(found.parts(name) > 1 for name in found.dim):
        raise CheckError(
            f"--shard tp: no weight can be cut among {devices} devices.",
            "It takes products with weights of at least 65,536 elements; heads are not cut. Try fewer devices, or --shard fsdp.",
        )
    plan = TensorParallel(found, results, sums)
    hows = [(a.name, how) for p in programs for a, how in zip(p.arguments, plan.cuts(p).arguments, strict=True)]
    return replace(plan, notes=_notes(found, {name for name, how in hows if how != REPLICATED}))


def _parameter(name: str) -> str:
    """``exp_avg of layer.weight`` -> ``layer.weight``."""
    return name.rpartition(" of ")[2]


def _of_one(array: Argument) -> Dims:
    return dims_of(array.type)[1 if array.stacked else 0 :]


def _given(program: Program, functions: dict[str, Block]) -> list[State]:
    """The states of main's arguments: after the program's own come numbers that it is given packed."""
    states: list[State] = []
    for a in program.arguments:
        if not a.name:
            states.append(WHOLE)
        elif " of " in a.name:
            states.append(CONSTANT)
        else:
            own = tuple(range(len(_of_one(a))))
            states.append(Weight(a.name, (None, *own) if a.stacked else own))
    return states + [CONSTANT] * (len(functions["main"].arguments) - len(states))


def _notes(found: Found, cut_names: set[str]) -> list[str]:
    padded, shared, heads, others = (defaultdict(list) for _ in range(4))
    for name, size in found.size.items():
        if math.prod(size) < SMALL or len(size) < 2 or " of " in name:
            continue
        parts = found.parts(name)
        if parts > 1:
            length = size[found.dim[name]]
            if length % parts:
                padded[f"{length} to {-(-length // parts) * parts}"].append(name)
            if parts < found.devices:
                shared[
                    f"{found.limit[name]} heads make {parts} parts, each on {found.devices // parts} devices"
                ].append(name)
        elif name in found.dim or name in found.whole:
            heads[""].append(name)
        elif name not in cut_names:
            others[""].append(name)
    return [
        *(f"padded from {how}: {_families(names)}" for how, names in padded.items()),
        *(f"{how}: {_families(names)}" for how, names in shared.items()),
        *(
            f"whole on every device, since its heads do not divide, or its input is whole: {_families(names)}"
            for names in heads.values()
        ),
        *(
            f"whole on every device, since no product or look-up says how to cut it: {_families(names)}"
            for names in others.values()
        ),
    ]


def _families(names: list[str]) -> str:
    """The names, with those of layers as one."""
    return ", ".join(dict.fromkeys(re.sub(r"(?<=\.)\d+(?=\.)", "*", name) for name in names))
