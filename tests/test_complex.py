"""Complex autograd has CPU PyTorch's conventions, and complex views of views see the same memory."""

import pytest
import torch
from comparison import Comparison


def data(*shape, dtype=torch.complex64):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape, dtype=dtype, generator=generator)


# Of a 3 x 3 matrix; each result is reduced to a real loss below.
FUNCTIONS = {
    "square": lambda z: z * z,
    "times_conjugate": lambda z: z * z.conj(),
    "absolute": torch.abs,
    "absolute_squared": lambda z: z.abs() ** 2,
    "real": torch.real,
    "imag": torch.imag,
    "angle": torch.angle,
    "conj": torch.conj,
    "conj_physical": torch.conj_physical,
    "sgn": torch.sgn,
    "reciprocal": torch.reciprocal,
    "quotient": lambda z: z / (z + 2),
    "number_over": lambda z: (1 + 2j) / z,
    "cube": lambda z: z**3,
    "power": lambda z: z ** (1.5 + 0.5j),
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "sin": torch.sin,
    "tanh": torch.tanh,
    "acos": torch.acos,
    "matmul": lambda z: z @ z,
    "with_real": lambda z: z * torch.arange(3.0, device=z.device),
    "real_times": lambda z: torch.arange(9, dtype=z.real.dtype, device=z.device).view(3, 3) @ z.real,
    "adjoint": lambda z: z.mH @ z,
    "view_as_real": lambda z: torch.view_as_real(z) ** 2,
    "to_complex": lambda z: torch.view_as_complex(torch.view_as_real(z) * 2),
    "polar": lambda z: torch.polar(z.abs(), z.angle()),
    "complex": lambda z: torch.complex(z.imag, z.real),
    "sum": lambda z: z.sum(0),
    "mean": torch.mean,
    "prod": lambda z: z.prod(1),
    "cumsum": lambda z: z.cumsum(1),
    "var": lambda z: z.var(1),
    "norm": torch.linalg.vector_norm,
    "inv": torch.linalg.inv,
    "det": torch.linalg.det,
    "solve": lambda z: torch.linalg.solve(z, z[:, :1]),
    "fft": torch.fft.fft,
    "ifft": lambda z: torch.fft.ifft(z).abs(),
    "rfft": lambda z: torch.fft.rfft(z.real),
    "irfft": lambda z: torch.fft.irfft(z, 4),
    "indexed": lambda z: z[[0, 0, 2]] * 1j,
    "where": lambda z: torch.where(z.real > 0, z, z.conj()),
    "cast_to_real_part": lambda z: (z * 2).real.float(),
    "addcmul": lambda z: torch.addcmul(z, z, z, value=0.5j),
    "outer": lambda z: torch.outer(z[0], z[1].conj()),
    "vdot": lambda z: torch.vdot(z[0], z[1]),
    "lerp": lambda z: torch.lerp(z, z.t(), 0.25),
    "in_place_part": lambda z: write_imag(z),
}


def write_imag(z: torch.Tensor) -> torch.Tensor:
    z = z * 1
    z.imag.mul_(3)
    return z


def gradient_of(f):
    def gradient(z):
        z = z.clone().requires_grad_()
        result = f(z)
        weights = torch.linspace(0.5, 1.5, result.numel(), device=z.device).view(result.shape)
        weighted = result * weights.to((result.real if result.is_complex() else result).dtype)
        loss = (weighted.real + 2 * weighted.imag) if weighted.is_complex() else weighted
        loss.sum().backward()
        return result.detach().resolve_conj(), z.grad.resolve_conj()

    return gradient


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_gradients_of_complex_functions(dtype):
    calls = Comparison(rtol=1e-4, atol=1e-5)
    z = data(3, 3, dtype=dtype)
    for name, f in FUNCTIONS.items():
        calls.add(name, gradient_of(f), z)
    assert calls.finish() == len(FUNCTIONS)


def test_a_real_leaf_gets_a_real_gradient():
    def gradient(x):
        x = x.clone().requires_grad_()
        ((x * (1 + 2j)).exp() * x).abs().sum().backward()
        return x.grad

    calls = Comparison()
    calls.add("real leaf", gradient, torch.linspace(-1, 1, 5))
    calls.add("float64 leaf", gradient, torch.linspace(-1, 1, 5, dtype=torch.float64))
    assert calls.finish() == 2


def test_a_complex_loss_is_refused():
    z = data(2).to("tpu").requires_grad_()
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for real scalar outputs"):
        (z * z).sum().backward()
    (z * z).sum().backward(torch.tensor(1 + 0j, device="tpu"))
    torch.testing.assert_close(z.grad.cpu(), 2 * z.detach().cpu().conj())


VIEWS = {
    "real": lambda z: z.real,
    "imag": lambda z: z.imag,
    "real_of_column": lambda z: z[:, 1].real,
    "column_of_imag": lambda z: z.imag[:, 1],
    "view_as_real": torch.view_as_real,
    "last_of_view_as_real": lambda z: torch.view_as_real(z)[..., 1],
    "back_again": lambda z: torch.view_as_complex(torch.view_as_real(z)[1:]),
    "transposed": lambda z: z.t().imag[1:, ::2],
    "real_of_strided": lambda z: z.as_strided((2, 2), (4, 1), 1).real,
    "as_strided_of_real": lambda z: z.real.as_strided((2, 2), (2, 8), 1),
    "expanded_row": lambda z: z[:1].real[0],
    "as_floats": lambda z: z.view(torch.float32)[:, 1:3],
    "diagonal_of_imag": lambda z: z.imag.diagonal(),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_complex_views_alias(name):
    calls = Comparison()

    def read_and_write(z):
        z = z.clone()
        view = VIEWS[name](z)
        before = view.clone()
        view.mul_(2)
        z.add_(1 + 1j)
        return before, view.clone(), z, view.storage_offset()

    calls.add(name, read_and_write, data(3, 4))
    assert calls.finish() == 1


def test_conjugated_views_are_written_through():
    calls = Comparison()

    def write(z):
        z = z.clone()
        conjugated = z.conj()
        conjugated[0].add_(1j)
        conjugated.imag.mul_(2)
        negative = z.conj().imag
        return z, conjugated.resolve_conj(), negative.resolve_neg(), (conjugated @ z.t()).resolve_conj()

    calls.add("conj", write, data(3, 3))
    calls.add("conj of a real", lambda x: (x.conj(), x.is_conj()), torch.ones(2))
    assert calls.finish() == 2


def test_conjugates_in_place_and_into_given_tensors():
    calls = Comparison()
    for dtype in (torch.complex64, torch.complex128, torch.float32):
        z = data(3, 4, dtype=dtype)
        calls.add(f"in place {dtype}", lambda z: z.clone().conj_physical_(), z)
        calls.add(f"in place of a view {dtype}", lambda z: z.clone().t()[1:].conj_physical_(), z)
        calls.add(f"out {dtype}", lambda z: torch.conj_physical(z, out=torch.zeros_like(z)), z)
    assert calls.finish() == 9


def test_asinh_takes_the_side_of_a_zeros_sign_on_its_cuts():
    z = torch.complex(torch.tensor([-0.0, 0.0, -0.0, 0.0, -0.0]), torch.tensor([-1.5, -1.5, 2.0, 2.0, 0.5]))
    calls = Comparison(signs=True)
    calls.add("real", lambda z: torch.asinh(z).real.clone(), z)
    calls.add("imag", lambda z: torch.asinh(z).imag.clone(), z)
    assert calls.finish() == 2
