"""The rules of ``padding``, by op: which dims of the results are padded, and what must be neutralised first.

A rule is called with the analysis, the node and the node's arguments. It returns the results' pads, and maybe a Step.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import sympy
import torch

from torch_tpu.compile.pads import PRIMES, Pad, Pads, Step, Unproven, expression_of, is_symbolic, true_size

if TYPE_CHECKING:
    from torch_tpu.compile.padding import Analysis

aten = torch.ops.aten


def _is_pointwise(op: torch._ops.OpOverload) -> bool:
    return (
        torch.Tag.pointwise in op.tags
        and torch.Tag.nondeterministic_seeded not in op.tags
        and not op._schema.is_mutable
    )


def _pointwise(a: "Analysis", node: torch.fx.Node, *args: Any, **kwargs: Any) -> Any:
    value = a.value(node)
    if not isinstance(value, torch.Tensor):
        raise Unproven(str(node.target))
    pads: list[Pad | None] = [None] * value.dim()
    numbers = [i for i, x in enumerate(args) if is_symbolic(a.value(x))]
    if any(is_symbolic(a.value(x)) for x in kwargs.values()):
        raise Unproven(f"{node.target}: a size as a number")
    for x in (*args, *kwargs.values()):
        if not (isinstance(x, torch.fx.Node) and isinstance(a.value(x), torch.Tensor)):
            continue
        first = value.dim() - a.rank(x)
        for d, (size, pad) in enumerate(zip(a.value(x).shape, a.pads_of(x), strict=True)):
            if pad is None and expression_of(size) == 1:
                continue
            if pads[first + d] not in (None, pad):
                raise Unproven(f"{node.target}: two sizes in one dim")
            pads[first + d] = pad
    if not numbers:
        return tuple(pads)
    if len(args) < 2 or not value.dtype.is_floating_point:
        raise Unproven(f"{node.target}: a size as a number")
    expressions = {}
    for i in numbers:
        if not isinstance(a.value(args[i]), torch.SymInt):
            raise Unproven(f"{node.target}: a size as a number")
        expressions[i] = expression_of(a.value(args[i]))
        true_size(expressions[i], dict.fromkeys(a.symbols, 1))

    def with_true_sizes(sizes: dict, *args: Any, **kwargs: Any) -> torch.Tensor:
        given = list(args)
        for i, expression in expressions.items():
            given[i] = true_size(expression, sizes).to(torch.float32)
        given = [
            x.float() if isinstance(x, torch.Tensor) and x.is_floating_point() and x.dtype.itemsize < 4 else x
            for x in given
        ]
        return node.target.overloadpacket(*given, **kwargs).to(value.dtype)

    return tuple(pads), Step({}, replace=with_true_sizes)


def _same(a: "Analysis", node: torch.fx.Node, x: Any, *args: Any, **kwargs: Any) -> Pads:
    return a.pads_of(x)


def _triangle(a: "Analysis", node: torch.fx.Node, x: Any, *args: Any) -> Pads:
    if any(pad is not None and pad.pre != 1 for pad in a.pads_of(x)[-2:]) or any(is_symbolic(a.value(d)) for d in args):
        raise Unproven(f"{node.target} of a flattened dynamic dim")
    return a.pads_of(x)


def _view(a: "Analysis", node: torch.fx.Node, x: Any, *args: Any, **kwargs: Any) -> Pads:
    before, after = a.sizes(x), a.sizes(node)
    pads = a.pads_of(x)
    result: list[Pad | None] = []
    i = j = 0
    while i < len(before) or j < len(after):
        group_in, group_out = [], []
        product_in = product_out = 1
        while not group_in or product_in != product_out:
            if product_in <= product_out and i < len(before):
                product_in *= before[i]
                group_in.append(i)
                i += 1
            elif j < len(after):
                product_out *= after[j]
                group_out.append(j)
                j += 1
            elif i < len(before):
                product_in *= before[i]
                group_in.append(i)
                i += 1
            else:
                break
        while i == len(before) and j < len(after):
            group_out.append(j)
            j += 1
        result += _regroup([before[k] for k in group_in], [pads[k] for k in group_in], [after[k] for k in group_out])
    return tuple(result)


def _regroup(before: list[int], pads: list[Pad | None], after: list[int]) -> list[Pad | None]:
    """The pads of dims ``after``, which hold the same elements as the dims ``before``."""
    padded = [k for k, pad in enumerate(pads) if pad is not None]
    if not padded:
        return [None] * len(after)
    if len(padded) > 1:
        raise Unproven("a view that joins two dynamic sizes")
    (k,) = padded
    prime = math.gcd(before[k], math.prod(PRIMES))
    pre, post = math.prod(before[:k]) * pads[k].pre, math.prod(before[k + 1 :]) * pads[k].post
    result: list[Pad | None] = [None] * len(after)
    for j, size in enumerate(after):
        if size % prime == 0:
            outer, inner = math.prod(after[:j]), math.prod(after[j + 1 :])
            if pre % outer or post % inner:
                raise Unproven("a view that divides a dynamic size")
            result[j] = Pad(pads[k].symbol, pre // outer, post // inner)
    return result


def _permute(a: "Analysis", node: torch.fx.Node, x: Any, dims: list[int]) -> Pads:
    return tuple(a.pads_of(x)[a.dim(x, d)] for d in dims)


def _transpose(a: "Analysis", node: torch.fx.Node, x: Any, dim0: int, dim1: int) -> Pads:
    pads = list(a.pads_of(x))
    i, j = a.dim(x, dim0), a.dim(x, dim1)
    pads[i], pads[j] = pads[j], pads[i]
    return tuple(pads)


def _t(a: "Analysis", node: torch.fx.Node, x: Any) -> Pads:
    return tuple(reversed(a.pads_of(x)))


def _unsqueeze(a: "Analysis", node: torch.fx.Node, x: Any, dim: int) -> Pads:
    pads = list(a.pads_of(x))
    pads.insert(dim % (len(pads) + 1), None)
    return tuple(pads)


def _squeeze(a: "Analysis", node: torch.fx.Node, x: Any, dims: Any = None) -> Pads:
    dims = range(a.rank(x)) if dims is None else [dims] if isinstance(dims, int) else dims
    gone = {a.dim(x, d) for d in dims if expression_of(a.value(x).shape[a.dim(x, d)]) == 1}
    return tuple(pad for d, pad in enumerate(a.pads_of(x)) if d not in gone)


def _expand(a: "Analysis", node: torch.fx.Node, x: Any, *args: Any, **kwargs: Any) -> Pads:
    value = a.value(node)
    first = value.dim() - a.rank(x)
    pads: list[Pad | None] = []
    for d, size in enumerate(value.shape):
        own = a.value(x).shape[d - first] if d >= first else 1
        pads.append(a.plain(size) if expression_of(own) == 1 else a.pads_of(x)[d - first])
    return tuple(pads)


def _slice(a: "Analysis", node: torch.fx.Node, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1):
    dim = a.dim(x, dim)
    pads = list(a.pads_of(x))
    before, after = a.value(x).shape[dim], a.value(node).shape[dim]
    if expression_of(before) == expression_of(after) and step == 1:
        return tuple(pads)
    if pads[dim] is None and not expression_of(after).is_Integer:
        if start not in (0, None) or step != 1:
            raise Unproven("a slice of dynamic length that does not start at 0")
        pads[dim] = a.plain(after)
    elif pads[dim] is not None:
        constant = all(isinstance(s, (int, type(None))) for s in (start, end))
        if pads[dim] != Pad(pads[dim].symbol) or not constant or (start or 0) < 0 or end is None or end < 0:
            raise Unproven("a slice of a dynamic dim")
        pads[dim] = a.plain(after)
    elif any(is_symbolic(a.value(s)) for s in (start, end)):
        raise Unproven("a slice at a dynamic place")
    return tuple(pads)


def _select(a: "Analysis", node: torch.fx.Node, x: Any, dim: int, index: Any) -> Any:
    if not isinstance(index, int):
        raise Unproven("select at a dynamic place")
    dim = a.dim(x, dim)
    pads = list(a.pads_of(x))
    pad = pads.pop(dim)
    if pad is None or (index >= 0 and pad == Pad(pad.symbol)):
        return tuple(pads)
    if pad != Pad(pad.symbol):
        raise Unproven("select of a flattened dynamic dim")

    def from_the_end(sizes: dict, x: torch.Tensor, *_: Any) -> torch.Tensor:
        return x.index_select(dim, (sizes[pad.symbol] + index).view(1)).squeeze(dim)

    return tuple(pads), Step({}, replace=from_the_end)


def _slice_backward(
    a: "Analysis", node: torch.fx.Node, grad: Any, sizes: list, dim: int, start: Any, end: Any, step: int
) -> Any:
    dim = a.dim(node, dim)
    pads = list(a.pads_of(grad))
    pad, after = pads[dim], a.value(node).shape[dim]
    if pad is None or expression_of(after) == expression_of(a.value(grad).shape[dim]):
        pads[dim] = pad if pad is not None else a.plain(after)
        if pads[dim] is not None and (pad is None or step != 1):
            raise Unproven("the gradient of a slice of a dynamic dim")
        return tuple(pads)
    if start != 0 or step != 1 or pad != Pad(pad.symbol) or a.plain(after) is not None:
        raise Unproven("the gradient of a slice of a dynamic dim")
    pads[dim] = None
    return tuple(pads), Step({0: 0}, frozenset({dim}))


def _select_backward(a: "Analysis", node: torch.fx.Node, grad: Any, sizes: list, dim: int, index: Any) -> Any:
    dim = a.dim(node, dim)
    pads = list(a.pads_of(grad))
    pad = a.plain(a.value(node).shape[dim])
    pads.insert(dim, pad)
    if not isinstance(index, int):
        raise Unproven("select at a dynamic place")
    if pad is None or index >= 0:
        return tuple(pads)

    def at_the_end(true: dict, grad: torch.Tensor, sizes: list, *_: Any) -> torch.Tensor:
        here = torch.arange(sizes[dim], device=grad.device) == true[pad.symbol] + index
        here = here.view([-1] + [1] * (len(sizes) - 1 - dim))
        return torch.where(here, grad.unsqueeze(dim), torch.zeros((), dtype=grad.dtype, device=grad.device))

    return tuple(pads), Step({}, replace=at_the_end)


def _cat(a: "Analysis", node: torch.fx.Node, xs: list, dim: int = 0) -> Pads:
    dim = a.dim(node, dim)
    xs = [x for x in xs if a.rank(x) == a.rank(node)]
    if len({a.pads_of(x) for x in xs}) != 1 or a.pads_of(xs[0])[dim] is not None:
        raise Unproven("cat along a dynamic dim")
    return a.pads_of(xs[0])


def _split(a: "Analysis", node: torch.fx.Node, x: Any, sizes: Any, dim: int = 0) -> list[Pads]:
    if a.pads_of(x)[a.dim(x, dim)] is not None:
        raise Unproven("split along a dynamic dim")
    return [a.pads_of(x)] * len(a.value(node))


def _unbind(a: "Analysis", node: torch.fx.Node, x: Any, dim: int = 0) -> list[Pads]:
    pads = list(a.pads_of(x))
    if pads.pop(a.dim(x, dim)) is not None:
        raise Unproven("unbind along a dynamic dim")
    return [tuple(pads)] * len(a.value(node))


def _made(a: "Analysis", node: torch.fx.Node, *args: Any, **kwargs: Any) -> Pads:
    """A result of one value everywhere."""
    constant = [x for x in args if isinstance(x, torch.fx.Node) and is_symbolic(a.value(x))]
    if constant:
        raise Unproven(f"{node.target}: a size as a number")
    return tuple(a.plain(size) for size in a.value(node).shape)


def _arange(a: "Analysis", node: torch.fx.Node, *args: Any, **kwargs: Any) -> Pads:
    start = args[0] if len(args) > 1 else 0
    step = args[2] if len(args) > 2 else 1
    if not isinstance(start, int) or step != 1 or start != 0:
        raise Unproven("arange that does not count from 0")
    return tuple(a.plain(size) for size in a.value(node).shape)


def _reduced(a: "Analysis", x: Any, dims: Any) -> set[int]:
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return set(range(a.rank(x)))
    return {a.dim(x, d) for d in ([dims] if isinstance(dims, int) else dims)}


def _without(a: "Analysis", x: Any, dims: set[int], keepdim: bool) -> Pads:
    kept = [None if d in dims else pad for d, pad in enumerate(a.pads_of(x)) if keepdim or d not in dims]
    return tuple(kept)


def _reduction(fill: float | str, results: int = 1, positions: bool = False) -> Callable:
    def rule(a: "Analysis", node: torch.fx.Node, x: Any, dims: Any = None, keepdim: bool = False, **kwargs: Any) -> Any:
        reduced = _reduced(a, x, dims)
        if positions and any(pad is not None and pad.pre != 1 for pad in a.pads_of(x)):
            raise Unproven(f"{node.target}: a position in a flattened dynamic dim")
        if positions and dims is None and a.rank(x) > 1:
            raise Unproven(f"{node.target}: a position in a flattened tensor")
        pads = _without(a, x, reduced, keepdim)
        return [pads] * results if results > 1 else pads, Step({0: fill}, frozenset(reduced))

    return rule


def _mean(a: "Analysis", node: torch.fx.Node, x: Any, dims: Any = None, keepdim: bool = False, **kwargs: Any) -> Any:
    reduced = _reduced(a, x, dims)
    count = sympy.Mul(*[expression_of(a.value(x).shape[d]) for d in reduced])
    if count.is_Integer:
        return _without(a, x, reduced, keepdim)
    dtype = a.value(node).dtype

    def over_true_sizes(sizes: dict, x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        total = x.sum(sorted(reduced), keepdim, dtype=torch.promote_types(dtype, torch.float32))
        return (total / true_size(count, sizes)).to(dtype)

    return _without(a, x, reduced, keepdim), Step({0: 0}, frozenset(reduced), over_true_sizes)


def _prefix(a: "Analysis", node: torch.fx.Node, x: Any, dim: int, **kwargs: Any) -> Pads:
    """An element depends on those before it only; padding comes last."""
    pad = a.pads_of(x)[a.dim(x, dim)]
    if pad is not None and pad.pre != 1:
        raise Unproven(f"{node.target} along a flattened dynamic dim")
    return a.pads_of(x)


def _softmax(a: "Analysis", node: torch.fx.Node, x: Any, dim: int, *args: Any, **kwargs: Any) -> Any:
    return a.pads_of(x), Step({0: "least"}, frozenset({a.dim(x, dim)}))


def _softmax_backward(a: "Analysis", node: torch.fx.Node, grad: Any, out: Any, dim: int, *args: Any) -> Any:
    if a.pads_of(grad) != a.pads_of(out):
        raise Unproven(str(node.target))
    return a.pads_of(grad), Step({0: 0, 1: 0}, frozenset({a.dim(grad, dim)}))


def _product(x: int, y: int) -> Callable:
    """A matrix product of the operands at positions x and y; an operand before them is added."""

    def rule(a: "Analysis", node: torch.fx.Node, *args: Any, **kwargs: Any) -> Any:
        left, right = a.pads_of(args[x]), a.pads_of(args[y])
        if left[-1] != right[-2] or (len(left) == 3 and left[0] != right[0]):
            raise Unproven(f"{node.target}: two sizes in one dim")
        pads = (*left[:-1], right[-1])
        for bias in args[:x]:
            own = a.pads_of(bias)
            for d, pad in enumerate(own, len(pads) - len(own)):
                if pad not in (None, pads[d]):
                    raise Unproven(f"{node.target}: two sizes in one dim")
        if left[-1] is None:
            return pads
        rank = len(left)
        return pads, Step({x: 0, y: 0}, by_operand={x: frozenset({rank - 1}), y: frozenset({rank - 2})})

    return rule


def _embedding(a: "Analysis", node: torch.fx.Node, weight: Any, indices: Any, *args: Any) -> Any:
    if any(a.pads_of(weight)):
        raise Unproven("a table of dynamic size")
    return (*a.pads_of(indices), None), Step({1: 0})


def _embedding_backward(a: "Analysis", node: torch.fx.Node, grad: Any, indices: Any, count: Any, *args: Any) -> Any:
    if is_symbolic(a.value(count)) or a.pads_of(grad)[-1] is not None:
        raise Unproven("a table of dynamic size")
    return (None, None), Step({0: 0, 1: 0})


def _index_select(a: "Analysis", node: torch.fx.Node, x: Any, dim: int, index: Any) -> Any:
    pads = list(a.pads_of(x))
    if pads[a.dim(x, dim)] is not None:
        raise Unproven("index_select along a dynamic dim")
    pads[a.dim(x, dim)] = a.pads_of(index)[0]
    return tuple(pads), Step({2: 0})


def _layer_norm(a: "Analysis", node: torch.fx.Node, x: Any, shape: list, *args: Any) -> Any:
    outer = a.rank(x) - len(shape)
    if any(a.pads_of(x)[outer:]):
        raise Unproven("a norm over a dynamic dim")
    statistics = (*a.pads_of(x)[:outer], *(None,) * len(shape))
    return [a.pads_of(x), statistics, statistics]


def _layer_norm_backward(a: "Analysis", node: torch.fx.Node, grad: Any, x: Any, shape: list, *args: Any) -> Any:
    if any(a.pads_of(x)[a.rank(x) - len(shape) :]) or a.pads_of(grad) != a.pads_of(x):
        raise Unproven("a norm over a dynamic dim")
    none = (None,) * len(shape)
    return [a.pads_of(x), none, none], Step({0: 0, 1: 0, 3: 0, 4: 0})


def _attention(first: int) -> Callable:
    """Fused attention whose query, key and value are the operands from ``first`` on; before and after them,
    a backward op has the gradient of the result, the result, and its log-sum-exp."""

    def rule(a: "Analysis", node: torch.fx.Node, *args: Any, attn_mask: Any = None, **kwargs: Any) -> Any:
        query, key, value = (a.pads_of(x) for x in args[first : first + 3])
        keys = key[2]
        if any(is_symbolic(a.value(x)) for x in (*args, *kwargs.values())):
            raise Unproven(f"{node.target}: a size as a number")
        if query[3] or value[3] or keys != value[2] or (keys and keys != Pad(keys.symbol)) or key[:2] != query[:2]:
            raise Unproven(f"{node.target}: two sizes in one dim")
        mask = a.pads_of(attn_mask) if attn_mask is not None else ()
        if mask and mask[-1] != keys:
            raise Unproven(f"{node.target}: a mask that does not cover the keys")
        zeros = dict.fromkeys((first + 1, first + 2) if first == 0 else range(6), 0)
        results = [query, query[:3]] if first == 0 else [query, key, value]
        if keys is None:
            return results, Step(zeros)

        def without_padded_keys(sizes: dict, *args: Any, attn_mask: Any = None, **kwargs: Any) -> Any:
            keep = torch.arange(args[first + 1].shape[2], device=args[first].device) < sizes[keys.symbol]
            if attn_mask is not None:
                none = False if attn_mask.dtype == torch.bool else -math.inf
                keep = torch.where(keep, attn_mask, torch.full((), none, dtype=attn_mask.dtype, device=keep.device))
            return node.target(*args, attn_mask=keep.expand(1, 1, 1, -1) if keep.dim() == 1 else keep, **kwargs)

        return results, Step(zeros, replace=without_padded_keys)

    return rule


def _nll_loss(
    a: "Analysis", node: torch.fx.Node, x: Any, target: Any, weight: Any, reduction: int, ignored: int
) -> Any:
    if a.rank(x) != 2 or a.pads_of(x)[1] is not None or a.pads_of(x)[0] != a.pads_of(target)[0]:
        raise Unproven(str(node.target))
    return [a.pads_of(target) if reduction == 0 else (), ()], Step({0: 0, 1: ignored})


def _nll_loss_backward(
    a: "Analysis", node: torch.fx.Node, grad: Any, x: Any, target: Any, w: Any, reduction: int, ignored: int, total: Any
) -> Any:
    if a.rank(x) != 2 or a.pads_of(x)[1] is not None or a.pads_of(x)[0] != a.pads_of(target)[0]:
        raise Unproven(str(node.target))
    return a.pads_of(x), Step({0: 0, 1: 0, 2: ignored})


def _write(a: "Analysis", node: torch.fx.Node, target: Any, source: Any, *args: Any) -> Pads:
    if any(a.pads_of(target)) or any(a.pads_of(source)):
        raise Unproven("an update of a tensor of dynamic size")
    return a.pads_of(target)


def _rules() -> dict[Any, Callable]:
    rules: dict[Any, Callable] = {}

    def add(rule: Callable, *names: str) -> None:
        for name in names:
            packet, _, overload = name.partition(".")
            op = getattr(getattr(aten, packet, None), overload or "default", None)
            if op is not None:
                rules[op] = rule

    add(_same, "clone", "alias", "detach", "_to_copy", "contiguous", "lift_fresh_copy", "full_like")
    add(_triangle, "tril", "triu")
    add(_same, "zeros_like", "ones_like", "empty_like")
    add(_pointwise, "gelu_backward", "tanh_backward", "sigmoid_backward", "silu_backward", "threshold_backward")
    add(_pointwise, "div.Scalar", "mul.Scalar", "add.Scalar", "sub.Scalar", "leaky_relu_backward", "softplus_backward")
    add(_pointwise, "hardtanh_backward", "elu_backward", "hardswish_backward", "hardsigmoid_backward")
    add(_view, "view", "_unsafe_view", "reshape", "_reshape_alias")
    add(_permute, "permute")
    add(_transpose, "transpose.int")
    add(_t, "t")
    add(_unsqueeze, "unsqueeze")
    add(_squeeze, "squeeze", "squeeze.dim", "squeeze.dims")
    add(_expand, "expand")
    add(_slice, "slice.Tensor")
    add(_select, "select.int")
    add(_slice_backward, "slice_backward")
    add(_select_backward, "select_backward")
    add(_cat, "cat")
    add(_split, "split.Tensor", "split_with_sizes")
    add(_unbind, "unbind.int")
    add(_made, "full", "zeros", "ones", "empty.memory_format", "new_full", "new_zeros", "new_ones", "new_empty")
    add(_arange, "arange", "arange.start", "arange.start_step")
    add(_reduction(0), "sum", "sum.dim_IntList", "any", "any.dim", "any.dims", "count_nonzero.dim_IntList")
    add(_reduction(1), "prod", "prod.dim_int", "all", "all.dim", "all.dims")
    add(_reduction("least"), "amax", "max", "logsumexp")
    add(_reduction("most"), "amin", "min")
    add(_reduction("least", positions=True), "argmax")
    add(_reduction("most", positions=True), "argmin")
    add(_reduction("least", 2, positions=True), "max.dim")
    add(_reduction("most", 2, positions=True), "min.dim")
    add(_mean, "mean", "mean.dim")
    add(_prefix, "cumsum", "cumprod")
    add(_softmax, "_softmax", "_log_softmax", "_safe_softmax")
    add(_softmax_backward, "_softmax_backward_data", "_log_softmax_backward_data")
    add(_product(0, 1), "mm", "bmm")
    add(_product(1, 2), "addmm", "baddbmm")
    add(_embedding, "embedding")
    add(_embedding_backward, "embedding_dense_backward")
    add(_index_select, "index_select")
    add(_layer_norm, "native_layer_norm")
    add(_layer_norm_backward, "native_layer_norm_backward")
    add(_nll_loss, "nll_loss_forward")
    add(_nll_loss_backward, "nll_loss_backward")
    add(_attention(0), "_scaled_dot_product_flash_attention_for_cpu")
    add(_attention(1), "_scaled_dot_product_flash_attention_for_cpu_backward")
    add(_write, "copy_")
    return rules


_RULES = _rules()


def rule_of(op: Any) -> Callable | None:
    """None if the op is not proven."""
    rule = _RULES.get(op)
    if rule is None and isinstance(op, torch._ops.OpOverload) and _is_pointwise(op):
        return _pointwise
    return rule
