"""``torch_tpu.export``: a model as one StableHLO program in a file, with its weights, and the loader of such files.

The file is a zip archive of ``program.mlir`` (StableHLO text: a function ``main`` of the weights, then the inputs),
``manifest.json`` (names, dtypes and sizes of what ``main`` takes and returns, in order) and ``weights.pt`` (a
dictionary of the weights by name, read with ``torch.load(weights_only=True)``). Nothing in it is code of Python.
"""

import io
import json
import os
import re
import zipfile
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_tpu import _C

FORMAT = 1


def export(model: Any, args: tuple, path: str | os.PathLike, kwargs: dict | None = None) -> None:
    """Writes ``model`` as a StableHLO program for inputs of the sizes and dtypes of ``args`` and ``kwargs``.

    ``model`` is a module or a ``torch.export.ExportedProgram``; on any device. Sizes are fixed. Buffers that
    the model updates are updated in the loaded program too. Raises ValueError for a program that draws
    random numbers, and NotImplementedError for sizes that are dynamic.
    """
    program = model
    if not isinstance(program, torch.export.ExportedProgram):
        with torch.no_grad():
            program = torch.export.export(model, args, kwargs, strict=False)
    program = program.run_decompositions({})
    signature = program.graph_signature
    names, values = [], []
    for spec in signature.input_specs:
        if spec.kind.name == "USER_INPUT":
            continue
        source = program.constants if spec.target not in program.state_dict else program.state_dict
        names.append(spec.target)
        values.append(source[spec.target])
    inputs, inputs_tree = pytree.tree_flatten((args, kwargs or {}))
    if any(isinstance(size, torch.SymInt) for node in program.graph.nodes for size in _shape(node)):
        raise NotImplementedError(
            "tpu: export of a program with dynamic sizes.\nExport it for fixed sizes, one file for each."
        )
    graph = program.graph_module
    _move_to_tpu(graph)
    given = [_on_tpu(x) for x in values + inputs]
    module, shapes = _capture(graph, given)
    outputs_tree = program.call_spec.out_spec
    updates = [spec.target for spec in signature.output_specs if spec.kind.name.endswith("MUTATION")]
    manifest = {
        "format": FORMAT,
        "weights": [_describe(x) | {"name": name} for name, x in zip(names, values, strict=True)],
        "inputs": [_describe(x) for x in inputs],
        "inputs_tree": pytree.treespec_dumps(inputs_tree),
        "outputs": shapes,
        "outputs_tree": pytree.treespec_dumps(outputs_tree),
        "updates": updates,  # the first results are the new values of these weights
    }
    weights = io.BytesIO()
    torch.save({name: x.detach().cpu() for name, x in zip(names, values, strict=True)}, weights)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        file.writestr("program.mlir", module)
        file.writestr("manifest.json", json.dumps(manifest, indent=1))
        file.writestr("weights.pt", weights.getvalue())


class Loaded:
    """An exported program, compiled for this process's device: called as the model was.

    ``weights`` are its weights by name, on ``tpu``.
    """

    def __init__(self, module: str, manifest: dict, weights: dict[str, torch.Tensor]):
        self._manifest = manifest
        self._order = [w["name"] for w in manifest["weights"]]
        self.weights = {name: _on_tpu(weights[name]) for name in self._order}
        self._inputs_tree = pytree.treespec_loads(manifest["inputs_tree"])
        self._outputs_tree = pytree.treespec_loads(manifest["outputs_tree"])
        results = [
            torch.empty(o["sizes"], dtype=getattr(torch, o["dtype"]), device="meta") for o in manifest["outputs"]
        ]
        self._program = _C.LoadedModule(module, results)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        inputs, tree = pytree.tree_flatten((args, kwargs))
        if tree != self._inputs_tree:
            raise TypeError(f"tpu: an exported program got arguments {tree}; expected {self._inputs_tree}")
        for i, (x, expected) in enumerate(zip(inputs, self._manifest["inputs"], strict=True)):
            if _describe(x) != expected:
                raise ValueError(f"tpu: input {i} of an exported program: got {_describe(x)}; expected {expected}")
        results = self._program.run([self.weights[n] for n in self._order] + [_on_tpu(x) for x in inputs])
        updates = self._manifest["updates"]
        self.weights.update(zip(updates, results, strict=False))
        return pytree.tree_unflatten(results[len(updates) :], self._outputs_tree)


def load_exported(path: str | os.PathLike) -> Loaded:
    """The program that ``export`` wrote to ``path``. Raises ValueError for a file of another format."""
    with zipfile.ZipFile(path) as file:
        manifest = json.loads(file.read("manifest.json"))
        if manifest.get("format") != FORMAT:
            raise ValueError(f"tpu: {path} has format {manifest.get('format')}; expected {FORMAT}.\nExport it again.")
        weights = torch.load(io.BytesIO(file.read("weights.pt")), weights_only=True)
        return Loaded(file.read("program.mlir").decode(), manifest, weights)


def _shape(node: torch.fx.Node) -> tuple:
    return tuple(getattr(node.meta.get("val"), "shape", ()))


def _describe(x: Any) -> dict:
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"tpu: an exported program takes tensors: got {type(x).__name__}.\nMake it part of the model.")
    return {"dtype": str(x.dtype).removeprefix("torch."), "sizes": list(x.shape)}


def _on_tpu(x: torch.Tensor) -> torch.Tensor:
    """A contiguous copy that is the whole of its storage."""
    return x.detach().cpu().contiguous().clone().to("tpu")


def _move_to_tpu(graph: torch.fx.GraphModule) -> None:
    """Makes what the graph creates on the device it was traced on on ``tpu`` instead."""
    for node in graph.graph.nodes:
        if "device" in node.kwargs:
            node.kwargs = node.kwargs | {"device": torch.device("tpu")}
    graph.recompile()


def _capture(graph: torch.fx.GraphModule, given: list[torch.Tensor]) -> tuple[str, list[dict]]:
    """The module of the graph, as a function of all of ``given``, and its results' descriptions."""
    compiled = _C.CompiledGraph()
    stand_ins = compiled.begin_capture(given)
    try:
        with torch.no_grad():
            results = [torch.empty_like(r, memory_format=torch.contiguous_format).copy_(r) for r in graph(*stand_ins)]
        compiled.finish_capture(results)
    except BaseException:
        compiled.cancel_capture()
        raise
    signature = compiled.signature()
    if signature["draws"]:
        raise ValueError("tpu: an exported program cannot draw random numbers.\nExport it after model.eval().")
    if any(argument < 0 for argument in signature["arguments"]):
        raise ValueError("tpu: an exported program uses a tensor that is neither a weight nor an input.")
    return _with_all_arguments(signature, given), [_describe(r) for r in results]


def _type(x: torch.Tensor) -> str:
    return _C.stablehlo_type(x)


def _with_all_arguments(signature: dict, given: list[torch.Tensor]) -> str:
    """The module behind a ``main`` that takes ``given`` in order, numbers being constants, and returns each result."""
    header = re.search(r"func\.func public @main\((.*)\) -> \((.*)\) \{", signature["module"])
    made = re.findall(r"tensor<[^>]*(?:<[^>]*>)?[^>]*>", header[2]) if header else []
    lines = []
    arguments = [f"%arg{i}" for i in signature["arguments"]]
    types = [_type(given[i]) for i in signature["arguments"]]
    for name, numbers, dtype in (("doubles", signature["doubles"], "f64"), ("integers", signature["integers"], "i64")):
        if numbers:
            types.append(f"tensor<{len(numbers)}x{dtype}>")
            values = ", ".join(_literal(x) for x in numbers)
            lines.append(f"  %{name} = stablehlo.constant dense<[{values}]> : {types[-1]}")
            arguments.append(f"%{name}")
    if made:
        suffix = f":{len(made)}" if len(made) > 1 else ""
        lines.append(
            f"  %made{suffix} = func.call @body({', '.join(arguments)}) : ({', '.join(types)}) -> ({header[2]})"
        )
    names = [f"%made#{r}" if len(made) > 1 else "%made" for r in range(len(made))]
    returned = [names[r] if r >= 0 else f"%arg{~r}" for r in signature["results"]]
    returned_types = [made[r] if r >= 0 else _type(given[~r]) for r in signature["results"]]
    lines.append(f"  return {', '.join(returned)} : {', '.join(returned_types)}")
    parameters = ", ".join(f"%arg{i}: {_type(x)}" for i, x in enumerate(given))
    main = f"func.func public @main({parameters}) -> ({', '.join(returned_types)}) {{\n" + "\n".join(lines) + "\n}\n"
    if not header:
        return f"module @program {{\n{main}}}\n"
    body = re.sub(r" \{tf\.aliasing_output = \d+ : i32\}", "", header[0]).replace("public @main", "private @body")
    start = header.start()
    return signature["module"][:start] + main + body + signature["module"][header.end() :]


def _literal(number: float | int) -> str:
    if isinstance(number, int):
        return str(number)
    return f"0x{torch.tensor(number, dtype=torch.float64).view(torch.int64).item() & (2**64 - 1):016X}"
