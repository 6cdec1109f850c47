"""The default random generators, one a device. None of these functions opens the device."""

import torch

from torch_tpu import _C
from torch_tpu.tpu._utils import _get_device_index


def _generator(device) -> torch.Generator:
    return _C.default_generator(_get_device_index(device, optional=True))


def _all() -> list[torch.Generator]:
    return [_C.default_generator(i) for i in range(_C.device_count())]


def manual_seed(seed: int) -> None:
    """Seeds the current device's generator."""
    if _C.device_count() > 0:
        _generator(None).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds every device's generator. ``torch.manual_seed`` calls it."""
    for generator in _all():
        generator.manual_seed(int(seed))


def seed() -> None:
    """Seeds the current device's generator from the system's entropy."""
    _generator(None).seed()


def seed_all() -> None:
    """Seeds every device's generator with one number from the system's entropy."""
    generators = _all()
    if generators:
        manual_seed_all(generators[0].seed())


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return _generator(None).initial_seed()


def get_rng_state(device="tpu") -> torch.Tensor:
    """The state of a device's generator: 16 bytes, on the CPU."""
    return _generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices' generators."""
    return [generator.get_state() for generator in _all()]


def set_rng_state(new_state: torch.Tensor, device="tpu") -> None:
    """Sets the state of a device's generator to what :func:`get_rng_state` gave."""
    _generator(device).set_state(new_state)


def set_rng_state_all(new_states) -> None:
    """Sets the states of all devices' generators."""
    for i, state in enumerate(new_states):
        set_rng_state(state, i)
