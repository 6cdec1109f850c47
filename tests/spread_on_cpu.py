"""Runs a spread program on devices of JAX's CPU client, to compare it with the one that it was made of.

Import it in a process of its own, with as many devices as XLA_FLAGS=--xla_force_host_platform_device_count says.
"""

import re

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxlib import xla_client

from torch_tpu.aot.sharding.text import dims_of

jax.config.update("jax_enable_x64", True)

_NUMPY = {"f32": "float32", "i64": "int64", "f64": "float64", "i1": "bool"}
_VALUE = r'tensor<(?P<type>[^>]*)>(?: \{mhlo\.sharding = "(?P<how>[^"]*)")?'


def _header(module):
    """(type, sharding or "") of main's arguments, and of its results."""
    line = next(line for line in module.splitlines() if "public @main(" in line)
    given, made = line.split(") -> (")
    return re.findall(rf"%\d+: {_VALUE}", given), re.findall(_VALUE, made)


def _sharding(how, devices):
    found = re.match(r"\{devices=\[([\d,]+)\]<=", how)
    if not found:
        return NamedSharding(Mesh(np.array(devices), ["all"]), PartitionSpec())
    parts = [int(n) for n in found[1].split(",")]
    names = [f"axis {i}" for i in range(len(parts))]
    cut = names[:-1] if "last_tile_dim_replicate" in how else names
    return NamedSharding(Mesh(np.array(devices).reshape(parts), names), PartitionSpec(*cut))


def values_for(program, seed=0):
    """Arrays for a program's arguments: ids, numbers such as a learning rate, and small floats."""
    random = np.random.default_rng(seed)
    found = []
    for i, (type_, _) in enumerate(_header(program.module)[0]):
        dims, kind = dims_of(f"tensor<{type_}>"), _NUMPY[type_.rpartition("x")[2]]
        if i >= len(program.arguments):
            value = np.full(dims, 0.5 if kind == "float64" else 1)
        elif kind == "int64":
            value = random.integers(0, 100, dims)
        else:
            value = 0.1 * random.standard_normal(dims)
            value = np.abs(value) if program.arguments[i].name.startswith("exp_avg_sq") else value
        found.append(value.astype(kind))
    return found


def run(module, values, count=1):
    """The results of a module of ``count`` partitions, whole."""
    devices = jax.local_devices()[:count]
    options = xla_client.CompileOptions()
    options.num_partitions = count
    build = options.executable_build_options
    build.num_partitions, build.use_spmd_partitioning = count, count > 1
    build.device_assignment = xla_client.DeviceAssignment.create(np.arange(count).reshape(1, count))
    program = devices[0].client.compile_and_load(module.encode(), xla_client.DeviceList(tuple(devices)), options)
    arguments, results = _header(module)
    given = [jax.device_put(v, _sharding(how, devices)) for v, (_, how) in zip(values, arguments, strict=True)]
    made = program.execute_sharded(given).disassemble_into_single_device_arrays()
    return [
        np.asarray(
            jax.make_array_from_single_device_arrays(dims_of(f"tensor<{type_}>"), _sharding(how, devices), parts)
        )
        for parts, (type_, how) in zip(made, results, strict=True)
    ]


def largest_difference(one, many):
    """Of arrays that should be the same, relative to the largest element of each."""
    differences = [np.abs(a - b).max() / max(np.abs(a).max(), 1e-30) for a, b in zip(one, many, strict=True) if a.size]
    return np.max(differences)  # NaN if there is one
