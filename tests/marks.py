"""Marks that several test files share."""

from importlib.util import find_spec

import pytest

from torch_tpu import _plugins

needs_libtpu = pytest.mark.skipif(not _plugins.installed(_plugins.TPU_PLUGINS), reason="libtpu is not installed")
needs_transformers = pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed")
