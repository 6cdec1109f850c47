"""Compares one OpInfo entry on ``tpu`` with CPU PyTorch: the judge of test_ops.py and sweep.py.

A check is (entry, dtype, kind). Samples are made on the CPU and moved. Values, dtypes, shapes and
strides of results must be CPU's; for random ops only dtypes and shapes.
"""

import warnings
from collections.abc import Callable, Iterator
from itertools import islice

import torch
from torch.testing import assert_close
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

KINDS = ("forward", "gradient", "inplace", "out", "noncontiguous")
DTYPES = {
    str(d).removeprefix("torch."): d
    for d in (
        torch.float32,
        torch.bfloat16,
        torch.float16,
        torch.float64,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
        torch.complex64,
        torch.complex128,
    )
}

# Results are random or uninitialised, so only their types are compared.
UNPREDICTABLE = {
    "bernoulli", "cauchy", "empty", "empty_like", "empty_permuted", "empty_strided", "exponential", "geometric",
    "log_normal", "multinomial", "new_empty", "new_empty_strided", "nn.functional.alpha_dropout",
    "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
    "nn.functional.feature_alpha_dropout", "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d", "nn.functional.rrelu", "normal", "rand_like", "randint", "randint_like",
    "randn", "randn_like", "torch.ops.aten._safe_softmax.random", "uniform", "normal.number_mean",
    "pca_lowrank", "svd_lowrank", "randperm",
}  # fmt: skip

# (rtol, atol) by dtype: torch.testing's own defaults.
TOLERANCE = {
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float16: (1e-3, 1e-5),
    torch.complex64: (1.3e-6, 1e-5),
    torch.complex128: (1e-7, 1e-7),
}

# Wider ones, by entry: (rtol, atol) for float32 and complex64, and the numerical reason.
WIDER: dict[str, tuple[float, float, str]] = {}


class Skip(Exception):
    """The CPU does not support this check, so there is nothing to compare with."""


def entries() -> list:
    return op_db


def full_name(op) -> str:
    return op.name + ("." + op.variant_test_name if op.variant_test_name else "")


def supported(op, dtype: torch.dtype) -> bool:
    return dtype in op.supported_dtypes("cpu")


def kinds_for(op, dtype: torch.dtype) -> list[str]:
    kinds = ["forward"]
    if op.supports_autograd and dtype in op.supported_backward_dtypes("cpu"):
        kinds.append("gradient")
    if op.get_inplace() is not None:
        kinds.append("inplace")
    if op.supports_out:
        kinds.append("out")
    kinds.append("noncontiguous")
    return kinds


def to_tpu(x):
    return tree_map(lambda t: t.detach().to("tpu").requires_grad_(t.requires_grad) if isinstance(t, torch.Tensor) else t, x)


def _noncontiguous(x):
    def spread(t):
        if not isinstance(t, torch.Tensor) or t.numel() < 2:
            return t
        return torch.repeat_interleave(t.detach(), 2, dim=-1)[..., ::2].requires_grad_(t.requires_grad)

    return tree_map(spread, x)


def compare(actual, expected, op, values: bool) -> None:
    """Raises AssertionError where two results differ."""
    flat_actual, shape_actual = tree_flatten(actual)
    flat_expected, shape_expected = tree_flatten(expected)
    assert len(flat_actual) == len(flat_expected), f"{shape_actual} for {shape_expected}"
    for a, e in zip(flat_actual, flat_expected, strict=True):
        if not isinstance(e, torch.Tensor):
            if values:
                assert a == e or a != a and e != e or isinstance(e, float) and abs(a - e) <= 1e-5 * abs(e), f"{a} for {e}"
            continue
        assert isinstance(a, torch.Tensor), f"{type(a)} for a tensor"
        assert a.dtype == e.dtype, f"{a.dtype} for {e.dtype}"
        assert a.shape == e.shape, f"{tuple(a.shape)} for {tuple(e.shape)}"
        if not values:
            continue
        if e.layout != torch.strided:
            a, e = a.to_dense(), e.to_dense()
        rtol, atol = TOLERANCE.get(e.dtype, (0.0, 0.0))
        if full_name(op) in WIDER and (e.dtype.is_floating_point or e.dtype.is_complex):
            rtol, atol = max(rtol, WIDER[full_name(op)][0]), max(atol, WIDER[full_name(op)][1])
        assert_close(a.detach().cpu(), e.detach(), rtol=rtol, atol=atol, equal_nan=True)


def _run(fn: Callable, sample):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fn(sample.input, *sample.args, **sample.kwargs)


def _samples(op, dtype, requires_grad: bool, limit: int | None) -> Iterator:
    samples = op.sample_inputs("cpu", dtype, requires_grad=requires_grad)
    return islice(samples, limit) if limit else iter(samples)


def _copy_of(sample):
    return sample.transform(lambda t: t.detach().clone().requires_grad_(t.requires_grad) if isinstance(t, torch.Tensor) else t)


def _grads(op, sample):
    result = _run(op, sample)
    if sample.output_process_fn_grad is not None:
        result = sample.output_process_fn_grad(result)
    outs = [t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor) and t.requires_grad]
    ins = [t for t in tree_flatten((sample.input, sample.args, sample.kwargs))[0] if isinstance(t, torch.Tensor) and t.requires_grad]
    if not outs or not ins:
        return None
    cotangents = []
    for out in outs:
        generator = torch.Generator().manual_seed(7)
        seed = torch.rand(out.shape, dtype=torch.float64, generator=generator) + 0.5
        cotangents.append(seed.to(out.dtype).to(out.device))
    return torch.autograd.grad(outs, ins, cotangents, allow_unused=True)


def _out_like(result):
    return tree_map(lambda t: torch.empty_like(t) if isinstance(t, torch.Tensor) else t, result)


def check(op, dtype: torch.dtype, kind: str, limit: int | None = None) -> int:
    """Runs up to ``limit`` samples of one check; returns how many were compared.

    Raises Skip if the CPU supports none of them, AssertionError (or what the op raised) on a difference.
    """
    values = full_name(op) not in UNPREDICTABLE and op.name not in UNPREDICTABLE
    compared = 0
    for sample in _samples(op, dtype, kind == "gradient", limit):
        if kind == "noncontiguous":
            sample = sample.transform(_noncontiguous)
        there = sample.transform(to_tpu)
        try:
            if kind == "gradient":
                expected = _grads(op, _copy_of(sample))
            elif kind == "inplace":
                if sample.broadcasts_input:
                    continue
                expected = _run(op.get_inplace(), _copy_of(sample))
            else:
                expected = _run(op, _copy_of(sample))
            if kind == "out":
                out = _out_like(expected)
                sample.kwargs["out"] = out
                expected = _run(op, sample)
                there.kwargs["out"] = to_tpu(tree_map(torch.zeros_like, out))
        except Exception:  # noqa: BLE001 the CPU refuses this sample, so there is nothing to compare with
            continue
        if expected is None and kind == "gradient":
            continue
        actual = {"gradient": lambda t: _grads(op, t), "inplace": lambda t: _run(op.get_inplace(), t)}.get(
            kind, lambda t: _run(op, t)
        )(there)
        try:
            compare(actual, expected, op, values)
        except AssertionError as error:
            raise AssertionError(f"{error}\nsample: {sample.summary()}") from None
        compared += 1
    if compared == 0:
        raise Skip
    return compared
