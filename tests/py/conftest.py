"""What the Python tests share: the device, comparison with the CPU, options."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import pytest

# Programs of earlier runs must not hide a failing compile, and tests must not fill the user's cache.
if "TORCHTPU_CACHE_DIR" not in os.environ:
    _scratch = tempfile.TemporaryDirectory(prefix="torchtpu-test-")
    os.environ["TORCHTPU_CACHE_DIR"] = _scratch.name


def pytest_addoption(parser):
    parser.addoption("--opinfo", choices=("sample", "full"), default="sample", help="how much of PyTorch's op database")


@pytest.fixture
def no_fallback():
    """Inside the test an operator that would run on the host is an error."""
    import torchtpu

    before = torchtpu.get_fallback()
    torchtpu.set_fallback("error")
    yield
    torchtpu.set_fallback(before)


@pytest.fixture(params=["debug", "strict", "fused"])
def every_mode(request):
    """Runs the test once in each eager mode."""
    import torchtpu

    with torchtpu.eager_mode(request.param):
        yield request.param


@pytest.fixture
def run_python():
    """Runs code in a process of its own and returns what it printed; the test fails if the process does."""

    def run(code: str, timeout: float = 120, check: bool = True, **environment: str) -> subprocess.CompletedProcess:
        result = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, **environment},
        )
        if check:
            assert result.returncode == 0, result.stderr[-3000:]
        return result

    return run
