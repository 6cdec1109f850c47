"""Settings of all tests, made before torch is imported."""

import os

# An op that falls back to the CPU is a failure.
os.environ.setdefault("TORCH_TPU_FALLBACK", "error")
