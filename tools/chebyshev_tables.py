"""Writes csrc/lowerings/chebyshev_tables.h: Chebyshev coefficients of special functions.

Each table holds c[k] of f = sum c[k] T_k(t), computed with mpmath at 40 digits and cut where the rest
is below 1e-17 of the largest one. Usage: python tools/chebyshev_tables.py > csrc/lowerings/chebyshev_tables.h
"""

from mpmath import mp, mpf

mp.dps = 40


def coefficients(f, n=64):
    """The first coefficients of ``f`` on [-1, 1], by its values at the Chebyshev nodes."""
    nodes = [mp.cos(mp.pi * (k + mpf(1) / 2) / n) for k in range(n)]
    values = [f(t) for t in nodes]
    c = [2 / mpf(n) * mp.fsum(values[k] * mp.cos(mp.pi * j * (k + mpf(1) / 2) / n) for k in range(n)) for j in range(n)]
    c[0] /= 2
    bound = max(abs(x) for x in c) * mpf("1e-17")
    while abs(c[-1]) < bound:
        c.pop()
    return c


def hankel(order, part):
    """The amplitude P or Q of the Bessel functions for x >= 8, in t = 128 / x^2 - 1; Q is divided by 8 / x."""

    def f(t):
        x = mp.sqrt(128 / (t + 1))
        phase = x - (2 * order + 1) * mp.pi / 4
        j, y = mp.besselj(order, x), mp.bessely(order, x)
        scale = mp.sqrt(mp.pi * x / 2)
        if part == "p":
            return scale * (j * mp.cos(phase) + y * mp.sin(phase))
        return scale * (y * mp.cos(phase) - j * mp.sin(phase)) * x / 8

    return f


def on_squares(limit, f):
    """``f(x)`` for x in [0, limit], in t = 2 x^2 / limit^2 - 1."""
    return lambda t: f(limit * mp.sqrt((t + 1) / 2))


def zeta_of(x):
    return 2 * mp.sqrt(x) ** 3 / 3


AIRY_RIGHT = zeta_of(mpf(2))
AIRY_LEFT = zeta_of(mpf(6))


def airy_decay(t):
    """2 sqrt(pi) x^(1/4) exp(zeta) Ai(x) for x >= 2, in t = 2 zeta(2) / zeta - 1."""
    z = 2 * AIRY_RIGHT / (t + 1)
    x = (3 * z / 2) ** (mpf(2) / 3)
    return 2 * mp.sqrt(mp.pi) * x ** mpf("0.25") * mp.exp(z) * mp.airyai(x)


def airy_wave(part):
    """The amplitudes of Ai(-z) for z >= 6, in t = 2 (zeta(6) / zeta)^2 - 1; the second divided by zeta(6) / zeta."""

    def f(t):
        z = AIRY_LEFT / mp.sqrt((t + 1) / 2)
        x = (3 * z / 2) ** (mpf(2) / 3)
        phase = z + mp.pi / 4
        a, b = mp.airyai(-x), mp.airybi(-x)
        scale = mp.sqrt(mp.pi) * x ** mpf("0.25")
        if part == "p":
            return scale * (a * mp.sin(phase) + b * mp.cos(phase))
        return scale * (b * mp.sin(phase) - a * mp.cos(phase)) * z / AIRY_LEFT

    return f


def erfcx(t):
    """(1 + 2 x) erfcx(x) for x >= 0, in t = (x - 3.75) / (x + 3.75)."""
    x = mpf("3.75") * (1 + t) / (1 - t)
    return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)


def normal_tail(low, high):
    """w (w - log(w) / w + ndtri(exp(-w^2 / 2))) for w in [low, high], in t linear in w."""

    def f(t):
        w = low + (t + 1) / 2 * mpf(high - low)
        log_p = -w * w / 2
        x = w - mp.log(w) / w
        for _ in range(60):
            tail = mp.erfc(x / mp.sqrt(2)) / 2
            step = (mp.log(tail) - log_p) * tail * mp.sqrt(2 * mp.pi) * mp.exp(x * x / 2)
            x += step
            if abs(step) < mpf(10) ** -35:
                break
        return w * (w - mp.log(w) / w - x)

    return f


def scaled(f):
    return lambda x: mp.exp(-x) * f(x)


TABLES = [
    (
        "I0eSmall",
        "exp(-x) I0(x), x in [0, 8], t = x / 4 - 1",
        lambda t: scaled(lambda x: mp.besseli(0, x))(4 * (t + 1)),
    ),
    (
        "I0eLarge",
        "sqrt(x) exp(-x) I0(x), x >= 8, t = 16 / x - 1",
        lambda t: mp.sqrt(16 / (t + 1)) * scaled(lambda x: mp.besseli(0, x))(16 / (t + 1)),
    ),
    (
        "I1eSmall",
        "exp(-x) I1(x) / x, x in [0, 8], t = x / 4 - 1",
        lambda t: scaled(lambda x: mp.besseli(1, x))(4 * (t + 1)) / (4 * (t + 1)),
    ),
    (
        "I1eLarge",
        "sqrt(x) exp(-x) I1(x), x >= 8, t = 16 / x - 1",
        lambda t: mp.sqrt(16 / (t + 1)) * scaled(lambda x: mp.besseli(1, x))(16 / (t + 1)),
    ),
    (
        "K0Small",
        "K0(x) + log(x / 2) I0(x), x in [0, 2], t = x^2 / 2 - 1",
        on_squares(2, lambda x: mp.besselk(0, x) + mp.log(x / 2) * mp.besseli(0, x)),
    ),
    (
        "K0Large",
        "sqrt(x) exp(x) K0(x), x >= 2, t = 4 / x - 1",
        lambda t: mp.sqrt(4 / (t + 1)) * mp.exp(4 / (t + 1)) * mp.besselk(0, 4 / (t + 1)),
    ),
    (
        "K1Small",
        "x (K1(x) - log(x / 2) I1(x)), x in [0, 2], t = x^2 / 2 - 1",
        on_squares(2, lambda x: x * (mp.besselk(1, x) - mp.log(x / 2) * mp.besseli(1, x))),
    ),
    (
        "K1Large",
        "sqrt(x) exp(x) K1(x), x >= 2, t = 4 / x - 1",
        lambda t: mp.sqrt(4 / (t + 1)) * mp.exp(4 / (t + 1)) * mp.besselk(1, 4 / (t + 1)),
    ),
    ("J0Small", "J0(x), x in [0, 8], t = x^2 / 32 - 1", on_squares(8, lambda x: mp.besselj(0, x))),
    ("J1Small", "J1(x) / x, x in [0, 8], t = x^2 / 32 - 1", on_squares(8, lambda x: mp.besselj(1, x) / x)),
    (
        "Y0Small",
        "Y0(x) - 2 / pi log(x) J0(x), x in [0, 8], t = x^2 / 32 - 1",
        on_squares(8, lambda x: mp.bessely(0, x) - 2 / mp.pi * mp.log(x) * mp.besselj(0, x)),
    ),
    (
        "Y1Small",
        "(Y1(x) - 2 / pi (log(x) J1(x) - 1 / x)) / x, x in [0, 8], t = x^2 / 32 - 1",
        on_squares(8, lambda x: (mp.bessely(1, x) - 2 / mp.pi * (mp.log(x) * mp.besselj(1, x) - 1 / x)) / x),
    ),
    ("P0", "amplitude of cos for order 0, x >= 8, t = 128 / x^2 - 1", hankel(0, "p")),
    ("Q0", "x / 8 times the amplitude of sin for order 0, x >= 8, t = 128 / x^2 - 1", hankel(0, "q")),
    ("P1", "amplitude of cos for order 1, x >= 8, t = 128 / x^2 - 1", hankel(1, "p")),
    ("Q1", "x / 8 times the amplitude of sin for order 1, x >= 8, t = 128 / x^2 - 1", hankel(1, "q")),
    ("AiryMiddle", "Ai(x), x in [-6, 2], t = (x + 2) / 4", lambda t: mp.airyai(4 * t - 2)),
    ("AiryDecay", airy_decay.__doc__, airy_decay),
    ("AiryWaveP", airy_wave.__doc__.split(";")[0], airy_wave("p")),
    ("AiryWaveQ", "As above, times zeta / zeta(6)", airy_wave("q")),
    ("Erfcx", erfcx.__doc__, erfcx),
    ("NormalTail", "w (w - log(w) / w + ndtri(exp(-w^2 / 2))), w in [2, 8], t = (w - 5) / 3", normal_tail(2, 8)),
    ("NormalFarTail", "w (w - log(w) / w + ndtri(exp(-w^2 / 2))), w in [8, 40], t = (w - 24) / 16", normal_tail(8, 40)),
]


def main():
    print("// Written by tools/chebyshev_tables.py: Chebyshev coefficients, the constant one first.")
    print("#pragma once\n\nnamespace torch_tpu::chebyshev {\n")
    for name, text, f in TABLES:
        print(f"// {text.rstrip('.')}.")
        print(f"constexpr double k{name}[] = {{")
        for c in coefficients(f):
            print(f"    {mp.nstr(c, 19)},")
        print("};\n")
    print("}  // namespace torch_tpu::chebyshev")


if __name__ == "__main__":
    main()
