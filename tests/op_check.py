"""Compares one OpInfo entry on ``tpu`` with CPU PyTorch: the judge of test_ops.py and sweep.py.

A check is (entry, dtype, kind). Samples are made on the CPU and moved. Values, dtypes, shapes and
strides of results must be CPU's; for random ops only dtypes and shapes. Where a floating-point value is
not CPU's, the op in float64 decides: the result must be about as close to it as CPU PyTorch's is.
What the CPU must refuse (the kind ``errors``) tpu must refuse with the same exception and in its words.
"""

import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch.testing import assert_close
from torch.testing._internal.common_methods_invocations import (
    foreach_binary_op_db,
    foreach_other_op_db,
    foreach_pointwise_op_db,
    foreach_reduce_op_db,
    foreach_unary_op_db,
    op_db,
)
from torch.utils._pytree import tree_flatten, tree_map

import torch_tpu

KINDS = ("forward", "gradient", "inplace", "out", "noncontiguous", "reference", "errors")
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

# Wider ones, by entry: (rtol, atol), and the numerical reason.
BESSEL = "CPU PyTorch's float64 is off by up to 9e-7 where |x| > 5; test_numbers.py holds ours against scipy"
WIDER: dict[str, tuple[float, float, str]] = {
    **{f"special.bessel_{name}": (1e-7, 2e-6, BESSEL) for name in ("j0", "j1", "y0", "y1")},
    "special.airy_ai": (
        5e-5,
        1e-5,
        "CPU PyTorch's is off by 2e-5 of the value below -2.09; test_numbers.py holds ours against scipy",
    ),
    "nn.functional.conv_transpose3d": (1e-5, 1e-5, "the bias's gradient adds 18,000 numbers, CPU PyTorch in a tree"),
}

# The results past the first are for the device's own backward. Those of PyTorch's Meta kernels and of
# other accelerators have the accumulation dtype and are not empty in evaluation, unlike the CPU's.
SAVES = {"native_layer_norm", "native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update"}

# Singular vectors and eigenvectors are defined up to a phase each, and a null space up to its basis: their
# values are compared after the sample's output_process_fn_grad, PyTorch's own way to remove that freedom.
UP_TO_PHASE = {"svd", "linalg.svd", "linalg.eigh", "linalg.eig"}

# Sizes given as a tensor are read on the host: PyTorch takes CPU tensors only.
HOST_ARGUMENTS = {"tensor_split"}


# The dtype that decides, and how many times CPU PyTorch's largest error a result may be off.
EXACT = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}
ERROR_RATIO = 4


@dataclass
class Count:
    """What became of a check's samples."""

    compared: int = 0
    dropped: int = 0  # the CPU refuses them, or they have no result of this kind
    empty: int = 0  # of those compared: a tensor without elements among the operands
    scalar: int = 0  # of those compared: a 0-d tensor among them

    def add(self, sample) -> None:
        """Counts a sample that was compared."""
        tensors = [
            t for t in tree_flatten((sample.input, sample.args, sample.kwargs))[0] if isinstance(t, torch.Tensor)
        ]
        self.compared += 1
        self.empty += any(t.numel() == 0 for t in tensors)
        self.scalar += any(t.dim() == 0 for t in tensors)


# Errors that depend on values: mode debug raises them, the others do not wait for values.
DEBUG_RAISES = "out of bounds|out of range|division by zero|probability tensor|invalid multinomial"


class Skip(Exception):
    """There is nothing to compare with: the CPU refuses every sample, or there is none."""

    def __init__(self, count: Count):
        super().__init__(f"the CPU refuses all {count.dropped} samples" if count.dropped else "no samples")
        self.count = count


def entries() -> list:
    foreach = (
        foreach_unary_op_db,
        foreach_binary_op_db,
        foreach_pointwise_op_db,
        foreach_reduce_op_db,
        foreach_other_op_db,
    )
    return [*op_db, *(op for db in foreach for op in db)]


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
    if op.reference_inputs_func is not None:
        kinds.append("reference")
    # Samples of errors have their own dtypes: the entry's first dtype stands for all.
    if op.error_inputs_func is not None and dtype == next(d for d in DTYPES.values() if supported(op, d)):
        kinds.append("errors")
    return kinds


def to_tpu(x):
    return tree_map(
        lambda t: t.detach().to("tpu").requires_grad_(t.requires_grad) if isinstance(t, torch.Tensor) else t, x
    )


# Factories of which some samples name no device.
RANGES = {"arange", "linspace", "logspace"}


def names_the_cpu(x) -> bool:
    return isinstance(x, (str, torch.device)) and str(x) == "cpu"


def _noncontiguous(x):
    def spread(t):
        if not isinstance(t, torch.Tensor) or t.layout != torch.strided or t.numel() < 2:
            return t
        return torch.repeat_interleave(t.detach(), 2, dim=-1)[..., ::2].requires_grad_(t.requires_grad)

    return tree_map(spread, x)


def _is_random(op, sample) -> bool:
    if full_name(op) == "nn.functional.multi_head_attention_forward":
        return sample.kwargs["training"]
    return sample.kwargs.get("dropout_p", 0) > 0


def _as_exact(a, e, exact, rtol: float, atol: float) -> bool:
    """Whether the errors of ``a`` are of the size of those of ``e``, which is CPU PyTorch's result."""
    if not isinstance(exact, torch.Tensor) or exact.shape != e.shape or exact.dtype != EXACT[e.dtype]:
        return False
    exact = exact.to_dense() if exact.layout != torch.strided else exact
    finite = e.isfinite() & exact.isfinite()
    if not torch.allclose(a[~finite], e[~finite], equal_nan=True) or not a[finite].isfinite().all():
        return False
    a, e, exact = (t[finite].to(exact.dtype) for t in (a, e, exact))
    if exact.numel() == 0:
        return True
    allowed = ERROR_RATIO * (e - exact).abs().max() + rtol * exact.abs() + atol
    return bool(((a - exact).abs() <= allowed).all())


def compare(actual, expected, op, values: bool, exactly: Callable | None = None) -> None:
    """Raises AssertionError where two results differ. ``exactly`` gives the result in float64."""
    flat_actual, shape_actual = tree_flatten(actual)
    flat_expected, shape_expected = tree_flatten(expected)
    assert len(flat_actual) == len(flat_expected), f"{shape_actual} for {shape_expected}"
    for i, (a, e) in enumerate(zip(flat_actual, flat_expected, strict=True)):
        if not isinstance(e, torch.Tensor):
            if values:
                assert a == e or (a != a and e != e) or (isinstance(e, float) and abs(a - e) <= 1e-5 * abs(e)), (
                    f"{a} for {e}"
                )
            continue
        assert isinstance(a, torch.Tensor), f"{type(a)} for a tensor"
        if i > 0 and op.name.removeprefix("torch.ops.aten.") in SAVES:
            if e.numel() == 0:
                continue
            a = a.to(e.dtype)
        assert a.device.type == "tpu", f"a result on {a.device}"
        assert a.dtype == e.dtype, f"{a.dtype} for {e.dtype}"
        assert a.shape == e.shape, f"{tuple(a.shape)} for {tuple(e.shape)}"
        if not values:
            continue
        if e.layout != torch.strided:
            a, e = a.to_dense(), e.to_dense()
        rtol, atol = TOLERANCE.get(e.dtype, (0.0, 0.0))
        if full_name(op) in WIDER and (e.dtype.is_floating_point or e.dtype.is_complex):
            rtol, atol = max(rtol, WIDER[full_name(op)][0]), max(atol, WIDER[full_name(op)][1])
        a, e = a.detach().cpu(), e.detach()
        try:
            assert_close(a, e, rtol=rtol, atol=atol, equal_nan=True)
        except AssertionError:
            if exactly is None or e.dtype not in EXACT:
                raise
            exact = tree_flatten(exactly())[0]
            if len(exact) != len(flat_expected) or not _as_exact(a, e, exact[i], rtol, atol):
                raise


def _run(fn: Callable, sample):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fn(sample.input, *sample.args, **sample.kwargs)


def _samples(op, dtype, kind: str, limit: int | None) -> Iterator:
    """The first ``limit`` samples; of the reference samples, which come in groups, as many at equal distances."""
    if kind == "reference":
        samples = list(op.reference_inputs("cpu", dtype))
        if limit and limit < len(samples):
            samples = [samples[i * len(samples) // limit] for i in range(limit)]
        return iter(samples)
    samples = op.sample_inputs("cpu", dtype, requires_grad=kind == "gradient")
    return islice(samples, limit) if limit else iter(samples)


def _copy_of(sample):
    return sample.transform(
        lambda t: t.detach().clone().requires_grad_(t.requires_grad) if isinstance(t, torch.Tensor) else t
    )


def _widened(sample):
    def wide(t):
        if isinstance(t, torch.dtype):
            return EXACT.get(t, t)
        if not isinstance(t, torch.Tensor) or t.dtype not in EXACT:
            return t
        return t.detach().to(EXACT[t.dtype]).requires_grad_(t.requires_grad)

    return sample.transform(wide)


def _grads(op, sample, dtype: torch.dtype | None = None):
    """Gradients for cotangents that are numbers of ``dtype``, by default the result's."""
    result = _run(op, sample)
    if sample.output_process_fn_grad is not None:
        result = sample.output_process_fn_grad(result)
    outs = [t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor) and t.requires_grad]
    ins = [
        t
        for t in tree_flatten((sample.input, sample.args, sample.kwargs))[0]
        if isinstance(t, torch.Tensor) and t.requires_grad
    ]
    if not outs or not ins:
        return None
    cotangents = []
    for out in outs:
        generator = torch.Generator().manual_seed(7)
        seed = torch.rand(out.shape, dtype=torch.float64, generator=generator) + 0.5
        cotangents.append(seed.to(dtype or out.dtype).to(out.dtype).to(out.device))
    return torch.autograd.grad(outs, ins, cotangents, allow_unused=True)


def _out_like(result):
    return tree_map(lambda t: torch.zeros_like(t) if isinstance(t, torch.Tensor) else t, result)


# Among equal elements PyTorch leaves open whose position comes back, so the element there is compared.
# By entry: which positional argument after the input is the dimension.
PICKS = {"argsort": 0, "sort": 0, "kthvalue": 1, "topk": 1, "mode": 0, "median": 0, "nanmedian": 0}


def _dim_of_picks(op, sample) -> int:
    at = PICKS[op.name]
    return sample.kwargs.get("dim", sample.args[at] if len(sample.args) > at else -1)


def _picked(op, result, sample):
    """``result`` with the positions replaced by the input's elements at them."""
    x = sample.input
    if op.name not in PICKS or sample.kwargs.get("stable") or x.dim() == 0:
        return result
    dim = _dim_of_picks(op, sample)

    def element(indices):
        return x.detach().gather(dim, indices if indices.dim() == x.dim() else indices.unsqueeze(dim))

    if isinstance(result, torch.Tensor):
        return element(result) if op.name == "argsort" else result
    return result[0], result[1].dtype == torch.int64, element(result[1])


def _shared_among_equals(op, grads, sample):
    """``grads`` with that of the input replaced, at each element, by the sum over the elements equal to it."""
    if op.name not in (*PICKS, "msort") or sample.kwargs.get("stable") or sample.input.dim() == 0:
        return grads
    x, grad = (t.detach().cpu() for t in (sample.input, grads[0]))
    dim = 0 if op.name == "msort" else _dim_of_picks(op, sample)
    if op.name in ("median", "nanmedian") and not sample.args and "dim" not in sample.kwargs:
        x, grad, dim = x.flatten(), grad.flatten(), 0
    values, order = x.sort(dim)
    starts = values.narrow(dim, 1, x.shape[dim] - 1) != values.narrow(dim, 0, x.shape[dim] - 1)
    run = torch.cat([torch.zeros_like(order.narrow(dim, 0, 1)), starts.long().cumsum(dim)], dim)
    sums = torch.zeros_like(grad).scatter_add(dim, run, grad.gather(dim, order)).gather(dim, run)
    return (torch.zeros_like(grad).scatter(dim, order, sums).reshape(grads[0].shape).to(grads[0].device), *grads[1:])


def _on_tpu(op, sample, move: Callable = to_tpu):
    """The sample with its tensors, and the devices it names, on tpu."""
    there = sample.transform(move)
    there.args = tuple("tpu" if names_the_cpu(a) else a for a in there.args)
    there.kwargs = {k: "tpu" if names_the_cpu(a) else a for k, a in there.kwargs.items()}
    if (op.name in RANGES or op.name.startswith("signal.windows.")) and not any(
        isinstance(a, torch.Tensor) for a in (there.input, *there.args)
    ):
        there.kwargs.setdefault("device", "tpu")
    if op.name in HOST_ARGUMENTS:
        there.args = sample.args
    return there


# Casts whose result is undefined in C++, and decided otherwise here (docs/semantics.md), where a number is not in range.
CASTS = {"byte": torch.uint8, "char": torch.int8, "short": torch.int16, "int": torch.int32, "long": torch.int64}


def _is_undefined(op, sample) -> bool:
    x = sample.input
    if op.name not in CASTS or not isinstance(x, torch.Tensor) or not x.dtype.is_floating_point:
        return False
    info = torch.iinfo(CASTS[op.name])
    return not bool((x.double().trunc().clamp(info.min, info.max) == x.double().trunc()).all())


def _expected(op, sample, kind: str, there):
    """The CPU's result; None if this kind has none for the sample. Gives both samples their out= argument."""
    if kind == "gradient":
        return _grads(op, _copy_of(sample))
    if kind == "inplace":
        return None if sample.broadcasts_input else _run(op.get_inplace(), _copy_of(sample))
    if kind == "reference" and _is_undefined(op, sample):
        return None
    expected = _run(op, _copy_of(sample))
    if kind == "out":
        out = _out_like(expected)
        sample.kwargs["out"] = out
        expected = _run(op, sample)
        there.kwargs["out"] = to_tpu(tree_map(torch.zeros_like, out))
    return expected


def check(op, dtype: torch.dtype, kind: str, limit: int | None = None) -> Count:
    """Runs up to ``limit`` samples of one check.

    Raises Skip if there is nothing to compare with, AssertionError (or what the op raised) on a difference.
    """
    torch.manual_seed(0)
    count = _check_errors(op) if kind == "errors" else _check_results(op, dtype, kind, limit)
    if count.compared == 0:
        raise Skip(count)
    return count


def _check_results(op, dtype: torch.dtype, kind: str, limit: int | None) -> Count:
    values = full_name(op) not in UNPREDICTABLE and op.name not in UNPREDICTABLE
    count = Count()
    for sample in _samples(op, dtype, kind, limit):
        if kind == "noncontiguous":
            sample = sample.transform(_noncontiguous)
        there = _on_tpu(op, sample)
        wide = _widened(sample)
        try:
            expected = _expected(op, sample, kind, there)
        except Exception:
            count.dropped += 1
            continue
        if expected is None and kind in ("gradient", "inplace", "reference"):
            count.dropped += 1
            continue
        actual = {"gradient": lambda t: _grads(op, t), "inplace": lambda t: _run(op.get_inplace(), t)}.get(
            kind, lambda t: _run(op, t)
        )(there)

        def exactly(wide=wide):
            try:
                return _grads(op, wide, dtype) if kind == "gradient" else _run(op, wide)
            except Exception:
                return ()

        if full_name(op) in UP_TO_PHASE and kind != "gradient":
            compare(actual, expected, op, False, exactly)
            fixed = sample.output_process_fn_grad
            actual, expected = fixed(actual), fixed(expected)
            exactly = lambda exactly=exactly, fixed=fixed: fixed(exactly())  # noqa: E731
        same_picks = _shared_among_equals if kind == "gradient" else _picked
        actual, expected = same_picks(op, actual, there), same_picks(op, expected, sample)
        try:
            compare(actual, expected, op, values and not _is_random(op, sample), exactly)
        except AssertionError as error:
            raise AssertionError(f"{error}\nsample: {sample.summary()}") from None
        count.add(sample)
    return count


def _moved_whole(sample):
    """The sample on tpu with the same tensors sharing the same storages, overlapping as they do."""
    storages, moved = {}, {}

    def move(t):
        if id(t) not in moved:
            storage = t.untyped_storage()
            if storage.data_ptr() not in storages:
                flat = torch.empty(0, dtype=t.dtype).set_(storage, 0, (storage.nbytes() // t.element_size(),))
                storages[storage.data_ptr()] = flat.to("tpu")
            there = storages[storage.data_ptr()].view(t.dtype).as_strided(t.shape, t.stride(), t.storage_offset())
            moved[id(t)] = there.requires_grad_(t.requires_grad)
        return moved[id(t)]

    def moves(t) -> bool:
        return isinstance(t, torch.Tensor) and t.layout == torch.strided and t.device.type == "cpu"

    return lambda x: tree_map(lambda t: move(t) if moves(t) else t, x)


def _refusal(op, sample) -> Exception | None:
    try:
        _run(op, sample)
    except Exception as error:
        return error
    return None


def _check_errors(op) -> Count:
    """PyTorch's ``error_inputs``: what the CPU refuses, tpu refuses, and goes on working."""
    count = Count()
    for case in op.error_inputs("cpu"):
        sample = case.sample_input
        there = _on_tpu(op, sample, _moved_whole(sample))
        expected = _refusal(op, sample)
        if not isinstance(expected, case.error_type) or not re.search(case.error_regex, str(expected)):
            count.dropped += 1  # not what this build of PyTorch does on the CPU
            continue
        actual = _refusal(op, there)
        if actual is None and re.search(DEBUG_RAISES, str(expected)):
            with torch_tpu.mode("debug"):
                actual = _refusal(op, there)
        about = f"{actual!r}\nexpected: {expected!r}\nsample: {sample.summary()}"
        assert type(actual) is type(expected), about
        assert re.search(case.error_regex, str(actual)), about
        assert torch.ones(2, device="tpu").add(1).tolist() == [2, 2], f"the device is not usable after {about}"
        count.add(sample)
    return count
