"""Settings of all tests, made before torch is imported."""

import os

# An op that falls back to the CPU is a failure.
os.environ.setdefault("TORCH_TPU_FALLBACK", "error")
# Tests count what is compiled, so nothing may be there from an earlier run.
os.environ.setdefault("TORCH_TPU_CACHE", "0")
# JAX would load libtpu, which other processes then cannot.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
