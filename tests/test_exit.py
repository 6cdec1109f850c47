"""A process that ends right after a backward pass ends well.

Autograd's own thread still holds Python objects of the pass then. With a long switch interval it gets the GIL late, so
that without care about every second of these processes would abort.
"""

import pytest

from tests.process import run_python

BACKWARD = """
    import sys, torch
    sys.setswitchinterval(60)
    torch.randn(4, requires_grad=True, device="tpu").sin().sum().backward()
"""
RECORDED = """
    import sys, torch
    from torch_tpu import aot
    sys.setswitchinterval(60)
    with aot.topology("v6e") as recording:
        torch.randn(4, requires_grad=True, device="tpu").sin().sum().backward()
    print(sorted(row for program in recording.programs for row in program.rows))
"""


@pytest.mark.parametrize("attempt", range(4))
def test_right_after_a_backward_pass(attempt):
    run_python(BACKWARD)


def test_right_after_a_backward_pass_on_the_last_of_several_devices():
    run_python(BACKWARD.replace('"tpu"', '"tpu:3"'), TORCH_TPU_DEVICE_COUNT="4")


@pytest.mark.parametrize("attempt", range(2))
def test_right_after_a_recorded_backward_pass(attempt):
    assert "aten::empty" not in run_python(RECORDED)
