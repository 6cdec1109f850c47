"""Random numbers: seeds, states, generators of one's own, distributions, and the same draws under every policy."""

import math

import pytest
import torch
from comparison import Comparison
from scipy import stats

import torch_tpu


def test_manual_seed_repeats_the_draws():
    torch.manual_seed(3)
    first = torch.randn(5, device="tpu")
    torch.manual_seed(3)
    assert torch.equal(first.cpu(), torch.randn(5, device="tpu").cpu())
    torch.tpu.manual_seed(3)
    assert torch.equal(first.cpu(), torch.randn(5, device="tpu").cpu())
    torch.tpu.manual_seed_all(3)
    assert torch.equal(first.cpu(), torch.randn(5, device="tpu").cpu())
    assert torch.tpu.initial_seed() == 3


def test_two_draws_differ():
    assert not torch.equal(torch.randn(5, device="tpu").cpu(), torch.randn(5, device="tpu").cpu())


def test_state_can_be_read_and_set():
    state = torch.tpu.get_rng_state()
    assert state.device.type == "cpu" and state.dtype == torch.uint8
    first = torch.rand(5, device="tpu").cpu()
    torch.tpu.set_rng_state(state)
    assert torch.equal(first, torch.rand(5, device="tpu").cpu())
    states = torch.tpu.get_rng_state_all()
    assert len(states) == torch.tpu.device_count()
    torch.tpu.set_rng_state_all(states)


def test_fork_rng_restores_the_state():
    torch.manual_seed(1)
    with torch.random.fork_rng(device_type="tpu"):
        torch.randn(100, device="tpu")
    after = torch.randn(3, device="tpu").cpu()
    torch.manual_seed(1)
    assert torch.equal(after, torch.randn(3, device="tpu").cpu())


def test_a_generator_of_ones_own_leaves_the_default_one_alone():
    own = torch.Generator(device="tpu")
    assert own.device.type == "tpu"
    own.manual_seed(7)
    state = torch.tpu.get_rng_state()
    first = torch.randn(4, device="tpu", generator=own).cpu()
    assert torch.equal(state, torch.tpu.get_rng_state())
    assert own.initial_seed() == 7
    own.manual_seed(7)
    copy = torch.Generator(device="tpu")
    copy.set_state(own.get_state())
    assert torch.equal(first, torch.randn(4, device="tpu", generator=own).cpu())
    assert torch.equal(first, torch.randn(4, device="tpu", generator=copy).cpu())
    assert torch.equal(own.clone_state().get_state(), own.get_state())


def test_negative_seeds_are_taken():
    own = torch.Generator(device="tpu")
    own.manual_seed(-1)
    assert own.initial_seed() == 2**64 - 1


def test_a_cpu_generator_is_refused():
    with pytest.raises(RuntimeError, match="generator"):
        torch.randn(2, device="tpu", generator=torch.Generator())
    with pytest.raises(RuntimeError):
        torch.Generator(device="tpu").set_state(torch.zeros(3, dtype=torch.uint8))


def test_every_policy_draws_the_same():
    def draws():
        torch.manual_seed(11)
        x = torch.randn(6, device="tpu")
        return torch.cat([x, torch.rand(3, device="tpu"), torch.nn.functional.dropout(x, 0.5)]).cpu()

    results = []
    for name in ("strict", "debug", "defer"):
        with torch_tpu.mode(name):
            results.append(draws())
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_checkpointing_recomputes_the_same_dropout():
    from torch.utils.checkpoint import checkpoint

    def f(x):
        return torch.nn.functional.dropout(x, 0.5).sin()

    x = torch.ones(64, device="tpu", requires_grad=True)
    torch.manual_seed(5)
    f(x).sum().backward()
    expected, x.grad = x.grad.cpu(), None
    torch.manual_seed(5)
    checkpoint(f, x, use_reentrant=False).sum().backward()
    assert torch.equal(x.grad.cpu(), expected)


# --- distributions, at fixed seeds: a bound of about one in ten thousand

COUNT = 20000


def draw(sampler, mode: str = "defer") -> torch.Tensor:
    torch.manual_seed(2024)
    with torch_tpu.mode(mode):
        return sampler().cpu()


def chi_square(counts: torch.Tensor, probabilities: torch.Tensor) -> float:
    """Pearson's statistic of cells that are expected at least five times, in standard deviations above its mean."""
    expected = probabilities.double() * counts.sum()
    cells = expected >= 5
    freedom = int(cells.sum()) - 1
    statistic = ((counts.double() - expected)[cells].square() / expected[cells]).sum().item()
    return (statistic - freedom) / math.sqrt(2 * freedom)


def empty(dtype=torch.float32) -> torch.Tensor:
    return torch.empty(COUNT, dtype=dtype, device="tpu")


def full(*values) -> torch.Tensor:
    return torch.tensor(values, device="tpu").expand(COUNT, len(values)).squeeze(1)


# A sampler and the distribution of its samples.
CONTINUOUS = {
    "rand": (lambda: torch.rand(COUNT, device="tpu"), stats.uniform()),
    "rand_float64": (lambda: torch.rand(COUNT, dtype=torch.float64, device="tpu"), stats.uniform()),
    "rand_bfloat16": (  # rounded down to 8 bits
        lambda: torch.rand(COUNT, dtype=torch.bfloat16, device="tpu"),
        stats.uniform(-(2**-9), 1),
    ),
    "rand_like_float16": (lambda: torch.rand_like(empty(torch.float16)), stats.uniform()),
    "uniform": (lambda: empty().uniform_(-2, 5), stats.uniform(-2, 7)),
    "randn": (lambda: torch.randn(COUNT, device="tpu"), stats.norm()),
    "randn_float64": (lambda: torch.randn(COUNT, dtype=torch.float64, device="tpu"), stats.norm()),
    "randn_bfloat16": (lambda: torch.randn(COUNT, dtype=torch.bfloat16, device="tpu"), stats.norm()),
    "randn_like_float16": (lambda: torch.randn_like(empty(torch.float16)), stats.norm()),
    "randn_real": (
        lambda: torch.randn(COUNT, dtype=torch.complex64, device="tpu").real,
        stats.norm(0, math.sqrt(0.5)),
    ),
    "randn_imag": (
        lambda: torch.randn(COUNT, dtype=torch.complex64, device="tpu").imag,
        stats.norm(0, math.sqrt(0.5)),
    ),
    "normal_": (lambda: empty().normal_(3, 2), stats.norm(3, 2)),
    "normal_of_tensors": (lambda: torch.normal(full(-1.0), full(0.5)), stats.norm(-1, 0.5)),
    "normal_of_a_number": (lambda: torch.normal(1.0, full(2.0)), stats.norm(1, 2)),
    "normal_of_a_mean": (lambda: torch.normal(full(4.0), 3.0), stats.norm(4, 3)),
    "normal_functional": (lambda: torch.ops.aten.normal_functional(empty(), 3, 2), stats.norm(3, 2)),
    "normal_into": (lambda: torch.ops.aten.normal.out(empty(), 3, 2, out=empty()), stats.norm(3, 2)),
    "normal_of_numbers": (lambda: torch.normal(4.0, 3.0, (COUNT,), device="tpu"), stats.norm(4, 3)),
    "log_normal": (lambda: empty().log_normal_(0.5, 0.25), stats.lognorm(0.25, scale=math.exp(0.5))),
    "exponential": (lambda: empty().exponential_(1.5), stats.expon(scale=1 / 1.5)),
    "cauchy": (lambda: empty().cauchy_(1, 2), stats.cauchy(1, 2)),
    "gamma_small": (lambda: torch.distributions.Gamma(full(0.4), full(1.0)).sample(), stats.gamma(0.4)),
    "gamma_large": (lambda: torch.distributions.Gamma(full(7.5), full(2.0)).sample(), stats.gamma(7.5, scale=0.5)),
    "dirichlet": (lambda: torch.distributions.Dirichlet(full(1.0, 0.5, 1.5)).sample()[:, 0], stats.beta(1, 2)),
    "beta": (lambda: torch.distributions.Beta(full(2.0), full(3.0)).sample(), stats.beta(2, 3)),
    "student": (lambda: torch.distributions.StudentT(full(5.0)).sample(), stats.t(5)),
    "von_mises": (lambda: torch.distributions.VonMises(full(0.0), full(2.0)).sample(), stats.vonmises(2)),
    "trunc_normal": (lambda: torch.nn.init.trunc_normal_(empty(), 0, 1, -1, 2), stats.truncnorm(-1, 2)),
    "rrelu": (
        lambda: torch.nn.functional.rrelu(-torch.ones(COUNT, device="tpu"), 0.1, 0.4, training=True).neg(),
        stats.uniform(0.1, 0.3),
    ),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_samples_follow_their_distribution(name):
    sampler, distribution = CONTINUOUS[name]
    sample = draw(sampler).double()
    assert sample.isfinite().all()
    # Rounding to 8 or 11 bits makes ties, which the test of a continuous distribution bears.
    assert stats.kstest(sample.numpy(), distribution.cdf).pvalue > 1e-4
    mean, variance, excess = (float(m) for m in distribution.stats("mvk"))
    if math.isfinite(excess):  # four standard errors of each moment
        assert abs(sample.mean().item() - mean) < 4 * math.sqrt(variance / COUNT)
        assert abs(sample.var().item() / variance - 1) < 4 * math.sqrt((excess + 2) / COUNT) + 1e-3
    x = torch.from_numpy(distribution.cdf(sample.numpy())) - 0.5  # no correlation between neighbours
    assert abs((x[1:] * x[:-1]).mean() / x.square().mean()).item() < 4 / math.sqrt(COUNT)


def counts_of(sample: torch.Tensor, low: int, cells: int) -> torch.Tensor:
    positions = sample.double().flatten() - low
    assert (positions == positions.floor()).all() and positions.min() >= 0
    return torch.bincount(positions.long().clamp(max=cells - 1), minlength=cells)


def poisson(rate: float, cells: int) -> torch.Tensor:
    k = torch.arange(cells - 1, dtype=torch.float64)
    mass = torch.exp(k * math.log(rate) - rate - torch.lgamma(k + 1))
    return torch.cat([mass, 1 - mass.sum(0, keepdim=True)])


def binomial(n: int, p: float) -> torch.Tensor:
    return torch.tensor([math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)], dtype=torch.float64)


def first_of_permutations() -> torch.Tensor:
    with torch_tpu.mode("strict"):  # one small program for all
        return torch.stack([torch.randperm(8, device="tpu") for _ in range(200)])[:, 0]


WEIGHTS = torch.tensor([1.0, 0.0, 3.0, 4.0, 2.0])

# sampler, the smallest value, the probabilities of it and its successors (the last: of all that follow)
DISCRETE = {
    "randint": (lambda: torch.randint(3, 9, (COUNT,), device="tpu"), 3, torch.full((6,), 1 / 6)),
    "randint_int8": (
        lambda: torch.randint(-5, 5, (COUNT,), dtype=torch.int8, device="tpu"),
        -5,
        torch.full((10,), 0.1),
    ),
    "random_to": (lambda: empty(torch.int32).random_(10), 0, torch.full((10,), 0.1)),
    "random_bytes": (lambda: empty(torch.uint8).random_(), 0, torch.full((256,), 1 / 256)),
    "random_wide": (lambda: empty(torch.int64).random_() >> 57, 0, torch.full((64,), 1 / 64)),
    "random_float": (
        lambda: empty().random_() // 2**20,
        0,
        torch.full((17,), 1 / 16).index_fill(0, torch.tensor(16), 0),
    ),
    "bernoulli": (lambda: torch.bernoulli(full(0.3)), 0, torch.tensor([0.7, 0.3])),
    "bernoulli_number": (lambda: empty(torch.bool).bernoulli_(0.3), 0, torch.tensor([0.7, 0.3])),
    "bernoulli_tensor": (lambda: empty().bernoulli_(full(0.8)), 0, torch.tensor([0.2, 0.8])),
    "geometric": (lambda: empty().geometric_(0.3), 1, torch.tensor([0.3 * 0.7**k for k in range(20)] + [0.7**20])),
    "multinomial": (lambda: torch.multinomial(WEIGHTS.to("tpu"), COUNT, replacement=True), 0, WEIGHTS / 10),
    "multinomial_of_rows": (lambda: torch.multinomial(WEIGHTS.to("tpu").expand(COUNT, 5), 1)[:, 0], 0, WEIGHTS / 10),
    "multinomial_first": (lambda: torch.multinomial(WEIGHTS.to("tpu").expand(COUNT, 5), 3)[:, 0], 0, WEIGHTS / 10),
    "categorical": (lambda: torch.distributions.Categorical(WEIGHTS.to("tpu")).sample((COUNT,)), 0, WEIGHTS / 10),
    "poisson_small": (lambda: torch.poisson(full(4.0)), 0, poisson(4.0, 16)),
    "poisson_large": (lambda: torch.poisson(full(30.0)), 0, poisson(30.0, 61)),
    "binomial_small": (lambda: torch.binomial(full(10.0), full(0.3)), 0, binomial(10, 0.3)),
    "binomial_large": (lambda: torch.binomial(full(100.0), full(0.6)), 0, binomial(100, 0.6)),
    "randperm": (first_of_permutations, 0, torch.full((8,), 1 / 8)),
    "dropout": (
        lambda: torch.nn.functional.dropout(torch.full((COUNT,), 3.0, device="tpu"), 0.25) / 4,
        0,
        torch.tensor([0.25, 0.75]),
    ),
    "dropout_channels": (
        lambda: torch.nn.functional.dropout2d(torch.full((COUNT, 1, 2, 2), 3.0, device="tpu"), 0.25)[:, 0, 1, 0] / 4,
        0,
        torch.tensor([0.25, 0.75]),
    ),
}


@pytest.mark.parametrize("name", DISCRETE)
def test_counts_follow_their_distribution(name):
    sampler, low, probabilities = DISCRETE[name]
    counts = counts_of(draw(sampler), low, len(probabilities))
    assert (counts[probabilities == 0] == 0).all()
    assert chi_square(counts, probabilities) < 5
    places = torch.arange(len(probabilities), dtype=torch.float64)
    p, n = probabilities.double(), counts.sum().item()
    mean = (p * places).sum()
    variance = (p * (places - mean) ** 2).sum()
    fourth = (p * (places - mean) ** 4).sum()
    measured = (counts * places).sum() / n
    assert abs(measured - mean) < 4 * math.sqrt(variance / n)
    spread = (counts * (places - mean) ** 2).sum() / n
    assert abs(spread - variance) <= 4 * math.sqrt((fourth - variance**2) / n) + 1e-3


@pytest.mark.parametrize(("high", "dtype"), [(3 << 29, torch.int32), (3 << 30, torch.int64), (3 << 61, torch.int64)])
def test_wide_ranges_have_no_bias(high, dtype):
    """The rest of a division of random bits would give the lower third half of the numbers, or more."""
    for sampler in (
        lambda: torch.randint(0, high, (COUNT,), dtype=dtype, device="tpu"),
        lambda: empty(dtype).random_(0, high),
        lambda: torch.randint_like(empty(dtype), 0, high),
    ):
        sample = draw(sampler)
        assert sample.min() >= 0 and sample.max() < high
        assert chi_square(torch.bincount(sample // (high // 3), minlength=3), torch.full((3,), 1 / 3)) < 5


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_random_reaches_its_ends(dtype):
    low, high = (0, 256) if dtype == torch.uint8 else (-128, 128)
    sample = draw(lambda: empty(dtype).random_(low, high)).long()
    assert sample.min() == low and sample.max() == high - 1
    assert chi_square(torch.bincount(sample - low, minlength=256), torch.full((256,), 1 / 256)) < 5
    assert draw(lambda: torch.randint(7, 8, (50,), dtype=dtype, device="tpu")).unique().tolist() == [7]


GOLDEN_BITS = [5538626544048537772, 6948807492722195862, 9082338477920686966, 188014028882567784]
GOLDEN_UNIFORM = [11300290, 10988979, 5652960]
GOLDEN_ORDER = [4, 6, 7, 3, 0, 1, 2, 5]


def test_every_plugin_draws_these_numbers():
    """Threefry-2x64 of the seed and the offset: changing what a seed gives would break people's runs."""
    torch.manual_seed(0)
    bits = torch.empty(4, dtype=torch.int64, device="tpu").random_()
    uniform = torch.rand(3, device="tpu")
    assert bits.tolist() == GOLDEN_BITS
    assert (uniform * 2**24).tolist() == GOLDEN_UNIFORM
    assert torch.randperm(8, device="tpu").tolist() == GOLDEN_ORDER


def test_drawing_without_replacement_repeats_nothing():
    rows = draw(lambda: torch.multinomial(WEIGHTS.to("tpu").expand(50, 5), 4))
    assert (rows.sort(1).values == torch.tensor([0, 2, 3, 4])).all()
    order = draw(lambda: torch.randperm(1000, device="tpu"))
    assert torch.equal(order.sort().values, torch.arange(1000)) and not torch.equal(order, torch.arange(1000))


def test_alpha_dropout_keeps_mean_and_variance():
    x = draw(lambda: torch.nn.functional.alpha_dropout(torch.randn(COUNT, device="tpu"), 0.3, training=True))
    assert abs(x.mean().item()) < 0.04 and abs(x.var().item() - 1) < 0.06


def test_dropout_in_its_older_forms():
    """Kept with a probability and divided by it, and the mask; CPU PyTorch has no such kernels."""
    x = torch.full((COUNT,), 3.0, device="tpu")
    torch.manual_seed(4)
    kept, mask = torch.ops.aten._fused_dropout(x, 0.75)
    assert set(mask.unique().tolist()) == {0, 1} and abs(mask.float().mean().item() - 0.75) < 0.02
    assert torch.equal(kept, torch.where(mask.bool(), 4.0, 0.0))
    assert torch.equal(torch.ops.aten._masked_scale(x, mask, 1 / 0.75), kept)


def test_the_noise_of_rrelu_is_its_slope():
    x = torch.linspace(-2, 2, 1000, device="tpu")
    for form in ("out", "in place"):
        noise, given = torch.zeros_like(x), x.clone()
        if form == "out":
            y = torch.ops.aten.rrelu_with_noise.out(given, noise, 0.1, 0.4, True, out=torch.empty_like(x))
        else:
            y = torch.ops.aten.rrelu_with_noise_(given, noise, 0.1, 0.4, True)
            assert y is given
        slopes = noise[x <= 0]
        assert slopes.min() >= 0.1 and slopes.max() <= 0.4 and slopes.unique().numel() > 400
        assert (noise[x > 0] == 1).all() and torch.equal(y, x * noise)
        quiet = torch.ops.aten.rrelu_with_noise(x, noise, 0.1, 0.4, False)
        assert torch.allclose(quiet, torch.nn.functional.leaky_relu(x, 0.25))


def test_gradients_of_samplers():
    """What a sample would change by with its parameter, at samples of the CPU."""
    calls = Comparison(rtol=2e-3, atol=1e-5)
    torch.manual_seed(6)
    shapes = torch.tensor([0.05, 0.3, 1.0, 2.5, 8.0, 40.0]).expand(20, 6).contiguous()
    calls.add("gamma", torch._standard_gamma_grad, shapes, torch._standard_gamma(shapes))
    calls.add("gamma, of zero", torch._standard_gamma_grad, shapes, torch.zeros_like(shapes))
    ends, alpha = torch.tensor([0.0, 1.0, 0.0, 1.0]), torch.tensor([0.5, 0.5, 5.0, 50.0])
    calls.add("Dirichlet, of zero and one", torch._dirichlet_grad, ends, alpha, 2 * alpha)
    concentrations = torch.tensor([[0.3, 1.5, 4.0], [2.0, 30.0, 0.7], [10.0, 9.0, 12.0]]).repeat(6, 1)
    total = concentrations.sum(1, keepdim=True).expand_as(concentrations)
    calls.add("Dirichlet", torch._dirichlet_grad, torch._sample_dirichlet(concentrations), concentrations, total)
    assert calls.finish() == 4


def test_samples_respect_their_bounds():
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        x = draw(lambda: torch.rand(200000, dtype=dtype, device="tpu"))  # noqa: B023
        assert x.min() >= 0 and x.max() < 1
    assert draw(lambda: empty().exponential_()).min() > 0
    assert draw(lambda: empty().uniform_(1, 1 + 2**-22)).max() < 1 + 2**-22


def test_wrong_parameters_are_refused():
    x = torch.zeros(3, device="tpu")
    for refused in (
        lambda: x.normal_(0, -1),
        lambda: x.exponential_(-1),
        lambda: x.geometric_(0),
        lambda: torch.randint(5, 5, (2,), device="tpu"),
        lambda: torch.multinomial(x.add(1), 4),
    ):
        with pytest.raises(RuntimeError):
            refused()


def test_every_sampler_draws_the_same_under_every_policy():
    slow = ("gamma_small", "dirichlet", "student", "poisson_large", "binomial_large", "randperm")  # to compile

    def all_samples():
        samplers = {**CONTINUOUS, **DISCRETE}
        draws = [sampler().flatten()[:500].double() for name, (sampler, *_) in samplers.items() if name not in slow]
        return [*draws, torch.randperm(100, device="tpu").double()]

    torch.manual_seed(9)
    with torch_tpu.mode("defer"):
        together = torch.cat(all_samples()).cpu()
    torch.manual_seed(9)
    with torch_tpu.mode("strict"):
        one_by_one = torch.cat(all_samples()).cpu()
    assert torch.equal(together, one_by_one)
