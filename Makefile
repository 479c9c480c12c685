# One command each, from a fresh clone: make demo, make test, make bench, make lint.
# Everything is installed into .venv; builds go to build/. PYTHON chooses the interpreter.
PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
PY := $(VENV)/bin/python
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

SOURCES := $(shell find src include shim torchtpu -name '*.[ch]' -o -name '*.def' -o -name '*.cpp' -o -name '*.py')

.PHONY: demo test test-c test-asan test-tsan test-py bench lint install clean

demo: $(VENV)/.installed
	$(PY) examples/digits.py

test: test-c test-asan test-tsan test-py

# The core's own tests: plain with warnings as errors, then under the sanitizers.
test-c test-asan test-tsan: $(VENV)/.test
test-c: PRESET := dev
test-asan: PRESET := asan-ubsan
test-tsan: PRESET := tsan
test-c test-asan test-tsan:
	cmake --preset $(PRESET) -DTORCHTPU_SHIM=OFF -DPython_EXECUTABLE=$(CURDIR)/$(PY) > build/$(PRESET).log || (cat build/$(PRESET).log; exit 1)
	cmake --build --preset $(PRESET)
	ctest --preset $(PRESET) -j 2

test-py: $(VENV)/.test $(VENV)/.installed
	TORCHTPU_TEST_FAKE_PLUGIN=$(wildcard $(CURDIR)/build/dev/fake_plugin.so) $(VENV)/bin/pytest $(PYTEST_ARGS)

bench: $(VENV)/.test $(VENV)/.installed
	$(PY) benchmarks/run.py

lint: $(VENV)/.lint
	$(PY) tools/check_layers.py
	$(PY) tools/operators.py --check
	$(VENV)/bin/ruff check torchtpu tools tests/py examples benchmarks
	$(VENV)/bin/ruff format --check torchtpu tools tests/py examples benchmarks
	$(VENV)/bin/mypy

install: $(VENV)/.installed

# --- the virtual environment: one stamp a stage ---------------------------------------------------------------------

$(VENV)/.torch:
	@command -v gcc > /dev/null && command -v g++ > /dev/null || \
	  { echo "torchtpu needs gcc and g++ (on Debian: apt-get install g++)"; exit 1; }
	@echo "making $(VENV) and installing $(TORCH)"
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -qq "$(TORCH)" numpy "scikit-build-core>=0.10" "cmake>=3.21" ninja
	@mkdir -p build
	@touch $@

$(VENV)/.deps: $(VENV)/.torch
	$(PY) -m pip install -qq fastatomstruct-xla-cpu "rich>=13" "click>=8" scikit-learn
	@touch $@

$(VENV)/.installed: $(VENV)/.deps CMakeLists.txt pyproject.toml $(SOURCES)
	@echo "building torchtpu"
	$(PY) -m pip install -qq --no-build-isolation --no-deps .
	@touch $@

# The other two CPU plugins are installed without their dependencies: one of them would bring jax.
$(VENV)/.test: $(VENV)/.deps
	$(PY) -m pip install -qq pytest pytest-timeout expecttest hypothesis safetensors pypjrt
	$(PY) -m pip install -qq --no-deps xla-cpu-pjrt lammps-jax-pjrt-cpu
	@touch $@

$(VENV)/.lint: $(VENV)/.deps
	$(PY) -m pip install -qq ruff mypy
	@touch $@

clean:
	rm -rf build dist $(VENV)
