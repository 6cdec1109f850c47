"""Marks that several test files share."""

import pytest

from torch_tpu import _plugins

needs_libtpu = pytest.mark.skipif(not _plugins.installed(_plugins.TPU_PLUGINS), reason="libtpu is not installed")
