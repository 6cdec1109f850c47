"""Proves that a graph with dynamic sizes can run at larger ones, and says where it needs a mask.

A dynamic size ``s`` is padded to a bucket ``B >= s``. What a padded value holds beyond its true part is
never relied on: it may be anything, NaN too. The analysis follows, for each dim of each value, how the
padded size is part of it (``Pad``). An op is *proven* if a rule (``padding_rules``) says which results hold padding, and
which operands must be neutralised first (zeros before a sum, the least number before a maximum), so that
no true element depends on padding. Any other op that meets padding raises ``Unproven`` with the op's name.
Knows nothing of devices; sizes are compared as numbers, with a large prime in each symbol's place.
"""

import operator
from typing import Any

import sympy
import torch

from torch_tpu.compile.padding_rules import rule_of
from torch_tpu.compile.pads import PRIMES, Pad, Pads, Step, Unproven, expression_of, is_symbolic


class Analysis:
    """``symbols``, and by node ``pads`` (a list of them for an op of several results) and ``steps``.

    ``known``: by name, the pads of arguments that another graph made, as it found them.
    """

    def __init__(self, graph: torch.fx.Graph, known: dict[str, Pads]):
        self._known = known
        self.symbols: list[sympy.Symbol] = []
        self.pads: dict[torch.fx.Node, Any] = {}
        self.steps: dict[torch.fx.Node, Step] = {}
        arguments = [node for node in graph.nodes if node.op == "placeholder"]
        for node in arguments:
            self._find_symbols(self.value(node))
        for node in arguments:
            self._placeholder(node)
        for node in graph.nodes:
            if node.op == "placeholder":
                continue
            if node.op == "get_attr":
                self._set(node, None)
            elif node.op == "call_function":
                self._call(node)
            elif node.op != "output":
                raise Unproven(node.op)

    # --- what rules ask

    def value(self, argument: Any) -> Any:
        """What a node stands for, or the argument itself."""
        return argument.meta.get("val") if isinstance(argument, torch.fx.Node) else argument

    def sizes(self, argument: Any) -> list[int]:
        """A tensor's sizes as numbers, with primes for the symbols."""
        return [self.number(s) for s in self.value(argument).shape]

    def number(self, size: Any) -> int:
        substitution = dict(zip(self.symbols, PRIMES, strict=False))
        number = sympy.sympify(expression_of(size).xreplace(substitution))
        if not number.is_Integer:
            raise Unproven(f"the size {size}")
        return int(number)

    def pads_of(self, argument: Any) -> Pads:
        if isinstance(argument, torch.fx.Node) and isinstance(self.value(argument), torch.Tensor):
            return self.pads[argument]
        return ()

    def rank(self, argument: Any) -> int:
        return self.value(argument).dim()

    def dim(self, argument: Any, dim: int) -> int:
        return dim % max(self.rank(argument), 1)

    def plain(self, size: Any) -> Pad | None:
        """The Pad of a dim whose size is a number or one symbol."""
        expression = expression_of(size)
        if expression.is_Integer:
            return None
        if expression in self.symbols:
            return Pad(expression)
        raise Unproven(f"the size {expression}")

    # --- the walk

    def _find_symbols(self, value: Any) -> None:
        for size in [value, *(value.shape if isinstance(value, torch.Tensor) else ())]:
            if isinstance(size, torch.SymInt):
                for symbol in sorted(size.node.expr.free_symbols, key=str):
                    self._add_symbol(symbol)

    def _placeholder(self, node: torch.fx.Node) -> None:
        value = self.value(node)
        if is_symbolic(value) and not isinstance(value, torch.SymInt):
            raise Unproven(f"the argument {value}")
        if isinstance(value, torch.Tensor):
            self._set(node, self._known.get(node.name) or tuple(self.plain(size) for size in value.shape))

    def _add_symbol(self, symbol: sympy.Symbol) -> None:
        if symbol not in self.symbols:
            self.symbols.append(symbol)
        if len(self.symbols) > len(PRIMES):
            raise Unproven(f"more than {len(PRIMES)} dynamic sizes")

    def _call(self, node: torch.fx.Node) -> None:
        if is_symbolic(self.value(node)) or isinstance(self.value(node), (int, float, bool)):
            if any(isinstance(self.value(a), torch.Tensor) for a in node.args) and "sym_" not in str(node.target):
                raise Unproven(f"{node.target}: a number that depends on values")
            return
        if node.target is operator.getitem:
            if node.args[0] not in self.pads:
                raise Unproven(f"{node.args[0].target}: results that are not known")
            self.pads[node] = self.pads[node.args[0]][node.args[1]]
            return
        arguments = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: n)
        flat: list[Any] = []
        torch.fx.node.map_arg(arguments, lambda n: flat.append(n) or n)
        symbolic = any(is_symbolic(self.value(n)) for n in flat)
        padded = any(any(self.pads_of(n)) for n in flat)
        rule = rule_of(node.target)
        if symbolic or padded:
            if rule is None:
                raise Unproven(str(node.target))
            result = rule(self, node, *node.args, **node.kwargs)
            with_step = isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Step)
            self._set(node, result[0] if with_step else result)
            if with_step:
                self.steps[node] = result[1]
        else:
            self._set(node, None)

    def _set(self, node: torch.fx.Node, pads: Any) -> None:
        """Notes the pads of a node's results, after checking them against their sizes. None: there are none."""
        value = self.value(node)
        if isinstance(value, (list, tuple)):
            pads = [None] * len(value) if pads is None else pads
            self.pads[node] = [
                self._checked(node, v, p) if isinstance(v, torch.Tensor) else None
                for v, p in zip(value, pads, strict=True)
            ]
        elif isinstance(value, torch.Tensor):
            self.pads[node] = self._checked(node, value, pads)

    def _checked(self, node: torch.fx.Node, value: torch.Tensor, pads: Pads | None) -> Pads:
        pads = (None,) * value.dim() if pads is None else tuple(pads)
        if len(pads) != value.dim():
            raise Unproven(f"{node.target}: {len(pads)} dims for {value.dim()}")
        for size, pad in zip(value.shape, pads, strict=True):
            expected = expression_of(size)
            got = expected if pad is None else pad.pre * pad.post * pad.symbol
            if (pad is None and not expected.is_Integer) or sympy.expand(got - expected) != 0:
                raise Unproven(f"{node.target}: the size {expected}")
        return pads
