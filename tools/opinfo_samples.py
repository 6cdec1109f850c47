"""Runs samples of an OpInfo entry on ``tpu``, for tools that look at what they call. Results are dropped."""

import contextlib
from itertools import islice

import op_check
import torch
from torch.utils._pytree import tree_flatten


def _on_tpu(op, sample):
    there = sample.transform(op_check.to_tpu)
    if op.name in op_check.HOST_ARGUMENTS:
        there.args = sample.args
    there.args = tuple("tpu" if op_check.names_the_cpu(a) else a for a in there.args)
    there.kwargs = {k: "tpu" if op_check.names_the_cpu(a) else a for k, a in there.kwargs.items()}
    return there


def _tensors_with_gradient(tree) -> list[torch.Tensor]:
    return [t for t in tree_flatten(tree)[0] if isinstance(t, torch.Tensor) and t.requires_grad]


def _run(op, sample, backward: bool) -> None:
    there = _on_tpu(op, sample)
    result = op(there.input, *there.args, **there.kwargs)
    if not backward:
        return
    if sample.output_process_fn_grad is not None:
        result = sample.output_process_fn_grad(result)
    outs = _tensors_with_gradient(result)
    ins = _tensors_with_gradient((there.input, there.args, there.kwargs))
    if outs and ins:
        torch.autograd.grad(outs, ins, [torch.ones_like(t) for t in outs], allow_unused=True)


def run_other_forms(op, dtype: torch.dtype, count: int) -> None:
    """Runs the first ``count`` samples in the in-place and out= forms and by the op's other names.

    Not every sample has every form: what fails is passed over.
    """
    in_place = [f.inplace_variant for f in (op, *op.aliases)]
    for sample in islice(op.sample_inputs("cpu", dtype), count):
        for form in (*in_place, *(alias.op for alias in op.aliases), _with_out if op.supports_out else None):
            if form is None:
                continue
            there = _on_tpu(op, sample)
            with contextlib.suppress(Exception):
                if form is _with_out:
                    _with_out(op, there)
                else:
                    form(there.input, *there.args, **there.kwargs)


def _with_out(op, there) -> None:
    result = op(there.input, *there.args, **there.kwargs)
    op(there.input, *there.args, **there.kwargs, out=result)


def run_samples(op, dtype: torch.dtype, forward: int, backward: int) -> str:
    """Runs the first ``forward`` samples, and the first ``backward`` with their gradients.

    Returns why the first that failed did, or nothing: the others run all the same.
    """
    why = ""
    differentiable = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    for gradient, count in ((False, forward), (True, backward if differentiable else 0)):
        for sample in islice(op.sample_inputs("cpu", dtype, requires_grad=gradient), count):
            try:
                _run(op, sample, gradient)
            except Exception as error:
                why = why or f"{type(error).__name__}: {error}"
    return why
