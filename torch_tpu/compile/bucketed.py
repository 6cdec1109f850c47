"""A graph with dynamic sizes: one padded program for each bucket of sizes, if ``padding`` proves it right.

A size ``n`` runs in the bucket of the next power of two (at least 16, at most what the graph's guards allow). The
true sizes are operands, so the sizes of one bucket share a program. What crosses the border:

- an argument whose storage is padded already (a result of another such graph) is taken as it is; any other
  goes through the host once to be padded, which needs no program of its own;
- a result that only the backward graph reads stays padded; one that padding leaves contiguous is a view of the padded
  value; any other is packed to the front of its storage by the program itself, so that it is contiguous as in eager mode.

A graph that is not proven gets exact programs, for at most ``EXACT_PROGRAMS`` combinations of sizes; further ones
run op by op.
"""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import sympy
import torch

from torch_tpu.compile.exact import Exact, OpByOp, saved_arguments
from torch_tpu.compile.padding import Analysis
from torch_tpu.compile.pads import Pads, Step, Unproven, expression_of, true_size

LEAST_BUCKET = 16
EXACT_PROGRAMS = 16


def has_dynamic_sizes(graph: torch.fx.GraphModule) -> bool:
    """True if a placeholder is a size, or has one that is not a number."""
    for node in graph.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and (
            isinstance(value, (torch.SymInt, torch.SymFloat))
            or (isinstance(value, torch.Tensor) and any(isinstance(s, torch.SymInt) for s in value.shape))
        ):
            return True
    return False


def _extreme(dtype: torch.dtype, which: str) -> float | int:
    sign = -1 if which == "least" else 1
    if dtype.is_floating_point:
        return sign * math.inf
    if dtype == torch.bool:
        return which == "most"
    return torch.iinfo(dtype).min if which == "least" else torch.iinfo(dtype).max


def _filled(x: torch.Tensor, pads: Pads, dims: frozenset[int] | None, fill: float | str, sizes: dict) -> torch.Tensor:
    """``x`` with the padding in ``dims`` replaced."""
    value = _extreme(x.dtype, fill) if isinstance(fill, str) else fill
    for d, pad in enumerate(pads):
        if pad is None or (dims is not None and d not in dims):
            continue
        bucket = x.shape[d] // (pad.pre * pad.post)
        index = torch.arange(x.shape[d], device=x.device) // pad.post % bucket
        keep = (index < sizes[pad.symbol]).view([-1] + [1] * (x.dim() - 1 - d))
        x = torch.where(keep, x, torch.full((), value, dtype=x.dtype, device=x.device))
    return x


def _packed(x: torch.Tensor, pads: Pads, sizes: dict) -> torch.Tensor:
    """The true elements of ``x``, in order, at the front of a flat tensor of as many elements as ``x``."""
    rest = torch.arange(x.numel(), device=x.device)
    place = torch.zeros_like(rest)
    stride = 1
    for d in reversed(range(x.dim())):
        pad = pads[d]
        if pad is None:
            place = place + rest % x.shape[d] * stride
            rest = rest // x.shape[d]
        else:
            bucket = x.shape[d] // (pad.pre * pad.post)
            for true, padded in ((pad.post, pad.post), (sizes[pad.symbol], bucket), (pad.pre, pad.pre)):
                place = place + rest % true * stride
                rest = rest // true
                stride *= padded
            continue
        stride *= x.shape[d]
    return x.reshape(-1)[place.clamp(max=x.numel() - 1)]


class _Padded(torch.fx.Interpreter):
    """Runs a graph at the buckets' sizes, masking where the analysis says so."""

    def __init__(self, graph: torch.fx.GraphModule, analysis: Analysis, sizes: dict, buckets: dict):
        super().__init__(graph)
        self._analysis, self._sizes, self._buckets = analysis, sizes, buckets

    def run_node(self, node: torch.fx.Node) -> Any:
        step = self._analysis.steps.get(node)
        result = super().run_node(node) if step is None else self._masked(node, step)
        expected = node.meta.get("val")
        if isinstance(expected, torch.Tensor) and isinstance(result, torch.Tensor):
            shape = [int(expression_of(s).xreplace(self._buckets)) for s in expected.shape]
            if list(result.shape) != shape:
                raise Unproven(f"{node.target}: got sizes {list(result.shape)}; expected {shape}")
        return result

    def _masked(self, node: torch.fx.Node, step: Step) -> Any:
        args, kwargs = self.fetch_args_kwargs_from_env(node)
        args = list(args)
        for i, fill in step.fills.items():
            args[i] = _filled(args[i], self._analysis.pads_of(node.args[i]), step.dims_of(i), fill, self._sizes)
        if step.replace is not None:
            return step.replace(self._sizes, *args, **kwargs)
        return node.target(*args, **kwargs)


class _Result:
    """A result of the graph: how it is handed out, and its true sizes."""

    def __init__(self, node: Any, analysis: Analysis, saved: bool):
        self.saved = saved  # for the backward graph
        self.argument = node if isinstance(node, torch.fx.Node) and node.op == "placeholder" else None
        value = node.meta.get("val") if isinstance(node, torch.fx.Node) else node
        self.size = expression_of(value) if isinstance(value, (torch.SymInt, int)) else None
        self.pads: Pads = analysis.pads_of(node)
        self.padded = any(self.pads)
        if self.padded:
            self.sizes = [expression_of(s) for s in value.shape]
            leading = all(expression_of(s) == 1 for s in value.shape[: next(d for d, p in enumerate(self.pads) if p)])
            contiguous = sum(p is not None for p in self.pads) == 1 and leading and value.is_contiguous()
            prefix = all(p is None or p.pre == 1 for p in self.pads)
            self.packed = not saved and not (prefix and contiguous)


class Bucketed:
    """Called with a list of arguments, which it empties.

    ``saved``: by name, the pads of what a forward graph saves: filled by that graph, read by its backward graph.
    """

    def __init__(self, graph: torch.fx.GraphModule, saved: dict[str, Pads]):
        self._graph, self._saved = graph, saved
        self._arguments = [node for node in graph.graph.nodes if node.op == "placeholder"]
        self._exact = Exact(graph, saved_arguments(graph))
        self._op_by_op = OpByOp(graph)
        self._sizes_seen: set[tuple] = set()
        self._size_tensors: dict[tuple, torch.Tensor] = {}
        self._why_exact = ""
        self._sources = self._find_sources()
        try:
            self._prepare()
        except Unproven as reason:
            self._why_exact = str(reason)

    def _prepare(self) -> None:
        self._analysis = analysis = Analysis(self._graph.graph, {} if self._is_forward() else self._saved)
        if not analysis.symbols or not any(isinstance(n.meta.get("val"), torch.Tensor) for n in self._arguments):
            raise Unproven("no argument has a dynamic size")
        context = torch._guards.TracingContext.try_get()
        metadata = context.fw_metadata if context else None
        (output,) = (node for node in self._graph.graph.nodes if node.op == "output")
        results = output.args[0]
        # Of a forward graph: what follows these is for the backward graph.
        user = getattr(metadata, "num_forward_returns", len(results)) if self._is_forward() else len(results)
        self._results = [_Result(node, analysis, i >= user) for i, node in enumerate(results)]
        self._returns_argument = any(r.argument is not None for r in self._results)
        self._padded = Exact(self._run_padded, saved_arguments(self._graph))
        self._captured: set[tuple] = set()
        self._limits = {s: _limit(self._graph, s) for s in analysis.symbols}
        if set(self._sources) != set(analysis.symbols):
            raise Unproven("a size that no argument has")
        for node, result in zip(results, self._results, strict=True):
            if result.saved and result.padded:
                self._saved[node.name] = result.pads

    def _is_forward(self) -> bool:
        return not any(str(node.target).startswith("tangents") for node in self._arguments)

    def _find_sources(self) -> dict[sympy.Symbol, tuple[int, int | None, int]]:
        """By symbol: the argument that is a multiple of it, or has one as dim; and the factor."""
        sources: dict[sympy.Symbol, tuple[int, int | None, int]] = {}

        def add(size: Any, argument: int, dim: int | None) -> None:
            factor, rest = expression_of(size).as_coeff_Mul()
            if isinstance(rest, sympy.Symbol) and factor.is_Integer and factor > 0:
                sources.setdefault(rest, (argument, dim, int(factor)))

        for i, node in enumerate(self._arguments):
            if isinstance(node.meta.get("val"), torch.SymInt):
                add(node.meta["val"], i, None)
        for i, node in enumerate(self._arguments):
            if isinstance(node.meta.get("val"), torch.Tensor) and node.name not in self._saved:
                for d, size in enumerate(node.meta["val"].shape):
                    add(size, i, d)
        return sources

    def _true_sizes(self, arguments: Any) -> dict[sympy.Symbol, int]:
        return {
            s: int(arguments[i] if d is None else arguments[i].shape[d]) // factor
            for s, (i, d, factor) in self._sources.items()
        }

    def modules(self) -> list[str]:
        return (self._exact if self._why_exact else self._padded).modules()

    def __call__(self, arguments: list) -> Any:
        if self._why_exact:
            return self._run_exact(arguments)
        true = self._true_sizes(arguments)
        if 0 in true.values():
            return self._run_exact(arguments)
        buckets = {s: min(max(LEAST_BUCKET, 1 << (n - 1).bit_length()), self._limits[s]) for s, n in true.items()}
        # Kept only where needed: an argument that only the list holds can be donated.
        bucket_key = tuple(buckets.values())
        originals = list(arguments) if self._returns_argument or bucket_key not in self._captured else []
        given: list[Any] = []
        for x, node in zip(arguments, self._arguments, strict=True):
            value = node.meta.get("val")
            if isinstance(value, torch.SymInt):
                given.append(int(value.node.expr.xreplace({s: sympy.Integer(b) for s, b in buckets.items()})))
            elif any(self._analysis.pads_of(node)):
                given.append(_padded_argument(x, value, self._analysis.pads_of(node), buckets))
            else:
                given.append(x)
        device = next(x.device for x in given if isinstance(x, torch.Tensor))
        given += [self._size_tensor(true[s], device) for s in self._analysis.symbols]
        arguments.clear()
        try:
            results = self._padded(given)
        except Unproven as reason:
            self._why_exact = str(reason)
            return self._run_exact(originals)
        self._captured.add(bucket_key)
        return [self._hand_out(x, r, true, originals) for x, r in zip(results, self._results, strict=True)]

    def _size_tensor(self, size: int, device: torch.device) -> torch.Tensor:
        key = (size, device)
        if key not in self._size_tensors:
            self._size_tensors[key] = torch.tensor(size).to(device)
        return self._size_tensors[key]

    def _run_padded(self, *arguments: Any) -> list:
        """What is captured: the graph at the buckets' sizes; the true sizes follow its arguments."""
        symbols = self._analysis.symbols
        given, sizes = arguments[: -len(symbols)], dict(zip(symbols, arguments[-len(symbols) :], strict=True))
        buckets = {s: sympy.Integer(n) for s, n in self._true_sizes(given).items()}
        results = _Padded(self._graph, self._analysis, sizes, buckets).run(*given)
        return [
            _packed(x, r.pads, sizes) if r.padded and r.packed and r.argument is None else x
            for x, r in zip(results, self._results, strict=True)
        ]

    def _hand_out(self, x: Any, result: _Result, true: dict, originals: list) -> Any:
        if result.argument is not None and (result.padded or result.size is not None):
            return originals[self._arguments.index(result.argument)]
        if result.size is not None:
            return int(result.size.xreplace({s: sympy.Integer(n) for s, n in true.items()}))
        if not result.padded or result.saved:
            return x
        sizes = [int(true_size(e, true)) for e in result.sizes]
        if not result.packed:
            return x.as_strided(sizes, x.stride())
        strides = [math.prod(sizes[d + 1 :]) for d in range(len(sizes))]
        return x.as_strided(sizes, strides)

    def _run_exact(self, arguments: list) -> Any:
        if not self._is_forward():
            true = {s: sympy.Integer(n) for s, n in self._true_sizes(arguments).items()}
            for i, node in enumerate(self._arguments):
                if node.name in self._saved:
                    arguments[i] = _cut(arguments[i], node.meta["val"], self._saved[node.name], true)
        sizes = tuple(tuple(x.shape) if isinstance(x, torch.Tensor) else x for x in arguments)
        if sizes not in self._sizes_seen:
            if len(self._sizes_seen) == EXACT_PROGRAMS:
                warnings.warn(
                    f"tpu: a compiled graph with dynamic sizes met more than {EXACT_PROGRAMS} combinations of sizes, and "
                    f"cannot be padded: {self._why_exact}.\nFurther sizes run op by op. Pad the input to few sizes, or "
                    "keep this op out of the compiled function.",
                    stacklevel=2,
                )
                self._sizes_seen.add(())
            if len(self._sizes_seen) > EXACT_PROGRAMS:
                return self._op_by_op(arguments)
            self._sizes_seen.add(sizes)
        return self._exact(arguments)


def _limit(graph: torch.fx.GraphModule, symbol: sympy.Symbol) -> int:
    """The largest value that the graph's guards let ``symbol`` have."""
    for node in graph.graph.nodes:
        for size in [node.meta.get("val"), *getattr(node.meta.get("val"), "shape", ())]:
            if isinstance(size, torch.SymInt) and size.node.expr == symbol:
                upper = size.node.shape_env.bound_sympy(symbol).upper
                return int(upper) if upper.is_Integer else 1 << 62
    return 1 << 62


def _padded_argument(x: torch.Tensor, value: torch.Tensor, pads: Pads, buckets: dict) -> torch.Tensor:
    """``x`` with the buckets' sizes, and the strides that ``value`` has at them."""
    numbers = {s: sympy.Integer(b) for s, b in buckets.items()}
    sizes = [int(expression_of(s).xreplace(numbers)) for s in value.shape]
    strides = [int(expression_of(s).xreplace(numbers)) for s in value.stride()]
    if list(x.shape) == sizes:
        return x
    if x.storage_offset() == 0 and list(x.stride()) == strides and all(p is None or p.pre == 1 for p in pads):
        extent = 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
        if x.untyped_storage().nbytes() == extent * x.element_size():
            return x.as_strided(sizes, strides)
    padded = torch.empty_strided(sizes, strides, dtype=x.dtype).zero_()
    padded[_places(x.shape, sizes, pads)] = x.detach().cpu()
    return padded.to(x.device)


def _places(true: Sequence[int], padded: Sequence[int], pads: Pads) -> tuple[torch.Tensor, ...]:
    """By dim, where the true elements are in a padded tensor."""
    places = []
    for d, (n, bucket, pad) in enumerate(zip(true, padded, pads, strict=True)):
        place = torch.arange(n)
        if pad is not None and pad.pre != 1:
            place = place // (n // pad.pre) * (bucket // pad.pre) + place % (n // pad.pre)
        places.append(place.view([-1] + [1] * (len(true) - 1 - d)))
    return tuple(places)


def _cut(x: torch.Tensor, value: torch.Tensor, pads: Pads, true: dict) -> torch.Tensor:
    """The true elements of ``x``, which the forward graph may have left padded."""
    sizes = [int(expression_of(s).xreplace(true)) for s in value.shape]
    if list(x.shape) == sizes:
        return x
    strides = [int(expression_of(s).xreplace(true)) for s in value.stride()]
    cut = torch.empty_strided(sizes, strides, dtype=x.dtype)
    return cut.copy_(x.cpu()[_places(sizes, x.shape, pads)]).to(x.device)
