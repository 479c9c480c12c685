"""Errors: what can be known without data is raised by the call, in every mode; afterwards the device still works."""

import os
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import torchtpu


@pytest.fixture(autouse=True)
def works_afterwards():
    yield
    assert (torch.ones(2, device="tpu") + 1).sum().item() == 4


CALLS = {
    "matmul shapes": lambda a: a @ a,
    "broadcast": lambda a: a + torch.ones(4, device=a.device),
    "view": lambda a: a.view(7),
    "cat": lambda a: torch.cat([a, torch.ones(2, 2, device=a.device)], 0),
    "linear": lambda a: F.linear(a, torch.ones(2, 2, device=a.device)),
    "dim": lambda a: a.sum(5),
    "two unknown sizes": lambda a: a.reshape(-1, -1),
    "convolution": lambda a: F.conv2d(a, a),
    "transpose": lambda a: a.transpose(0, 9),
    "stack": lambda a: torch.stack([a, a[0]]),
    "expand": lambda a: a.expand(3, 3),
    "unsqueeze": lambda a: a.unsqueeze(9),
    "bmm": lambda a: torch.bmm(a, a),
    "index dtype": lambda a: a.index_select(0, a),
    "negative size": lambda a: torch.zeros(-1, device=a.device),
    "item": lambda a: a.item(),
    "chunk": lambda a: a.chunk(0),
    "truth value": lambda a: bool(a),
    "select": lambda a: a.select(0, 7),
    "integer index": lambda a: a[5],
    "narrow": lambda a: a.narrow(0, 1, 9),
    "cross entropy": lambda a: F.cross_entropy(a, torch.zeros(3, dtype=torch.long, device=a.device)),
    "float bits": lambda a: a & 1,
    "layer norm": lambda a: F.layer_norm(a, (5,)),
    "pool": lambda a: F.max_pool2d(a[None], 5),
    "embedding": lambda a: F.embedding(a, a),
    "gather": lambda a: a.gather(0, torch.zeros(1, 1, 1, dtype=torch.long, device=a.device)),
    "scatter dtype": lambda a: a.scatter(0, torch.zeros(1, 1, dtype=torch.long, device=a.device), a.double()),
    "softmax dim": lambda a: a.softmax(3),
    "mean of ints": lambda a: a.long().mean(),
    "where": lambda a: torch.where(a > 0, a, torch.ones(5, device=a.device)),
    "one_hot": lambda a: F.one_hot(a),
}


@pytest.mark.parametrize("name", CALLS)
def test_raised_by_the_call_with_pytorchs_type(name, every_mode):
    with pytest.raises(Exception) as expected:
        CALLS[name](torch.ones(2, 3))
    with pytest.raises(expected.type):
        CALLS[name](torch.ones(2, 3, device="tpu"))


def test_operands_on_two_devices():
    a, b = torch.ones(3, device="tpu"), torch.ones(3)
    for f in (
        lambda: a + b,
        lambda: torch.cat([a, b]),
        lambda: F.linear(a, b[None]),
        lambda: a.mul_(b),
        lambda: b.add_(a),
    ):
        with pytest.raises(RuntimeError, match="device"):
            f()
    assert torch.equal(a.cpu(), b)


@pytest.mark.xfail(reason="index bounds are not checked on the device yet")
def test_index_out_of_range_is_not_silent():
    x = torch.arange(4.0, device="tpu")
    with torchtpu.eager_mode("debug"), pytest.raises((IndexError, RuntimeError)):
        x[torch.tensor([0, 99], device="tpu")].cpu()


def test_too_large_is_out_of_memory():
    keep = torch.arange(4.0, device="tpu")
    with pytest.raises((torch.OutOfMemoryError, RuntimeError)):
        torch.empty(2**60, device="tpu").fill_(1).sum().item()
    assert keep.sum().item() == 6


def test_singular_matrix():
    with pytest.raises(RuntimeError):
        torch.linalg.cholesky(-torch.eye(2, device="tpu")).cpu()


def test_fallback_policy():
    assert torchtpu.get_fallback() in ("warn", "silent", "error")
    before = torchtpu.get_fallback()
    with pytest.raises(ValueError, match="warn, error, silent"):
        torchtpu.set_fallback("maybe")
    for policy in ("silent", "error", "warn"):
        torchtpu.set_fallback(policy)
        assert torchtpu.get_fallback() == policy
    torchtpu.set_fallback(before)


def test_host_fallback_warns_once_and_counts(run_python):
    code = (
        "import torch, torchtpu, warnings\n"
        "x = torch.diag(torch.tensor([2., 2.])).to('tpu')\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    for _ in range(3): r = torch.linalg.eigvals(x)\n"
        "print(r.device.type, r.tolist(), sum('runs on the CPU' in str(w.message) for w in seen))\n"
        "print([n for n in torchtpu.stats()['fallbacks'].items() if 'eigvals' in n[0]])\n"
    )
    out = run_python(code).stdout.split("\n")
    assert out[0] == "tpu [(2+0j), (2+0j)] 1"
    assert "eigvals" in out[1] and out[1].rstrip(")]").endswith("3")


def test_host_fallback_as_an_error(no_fallback):
    with pytest.raises(NotImplementedError, match="eigvals.*set_fallback"):
        torch.linalg.eigvals(torch.eye(2, device="tpu"))


def test_decomposition_instead_of_the_host(no_fallback):
    x = torch.linspace(1, 2, 12).reshape(3, 4)
    before = torchtpu.stats()["fallbacks"]
    torch.testing.assert_close(x.to("tpu").renorm(2, 0, 0.5).cpu(), x.renorm(2, 0, 0.5))
    ours = x.to("tpu")
    ours.renorm_(2, 0, 0.5)
    torch.testing.assert_close(ours.cpu(), x.renorm(2, 0, 0.5))
    out = torch.empty(0, device="tpu")
    torch.renorm(x.to("tpu"), 2, 0, 0.5, out=out)
    torch.testing.assert_close(out.cpu(), x.renorm(2, 0, 0.5))
    assert torchtpu.stats()["fallbacks"] == before


def test_no_plugin(run_python):
    code = (
        "import torch, torchtpu\n"
        "from torchtpu import _plugins\n"
        "_plugins.CPU_PACKAGES = ()\n"
        "print(torch.tpu.is_available(), torch.tpu.device_count())\n"
        "try: torch.ones(1, device='tpu')\n"
        "except torchtpu.DeviceError as e: print(e)\n"
        "print((torch.ones(1) + 1).item())\n"
    )
    out = run_python(code, TORCHTPU_PLUGIN="").stdout
    assert out.startswith("False 0\n") and "pip install fastatomstruct-xla-cpu" in out and out.endswith("2.0\n")


@pytest.mark.parametrize("kind", ["missing", "text", "other library", "folder"])
def test_wrong_plugin(run_python, tmp_path, kind):
    path = tmp_path / "plugin.so"
    if kind == "text":
        path.write_text("not a library")
    elif kind == "other library":
        path.write_bytes(Path(torch.__file__).parent.joinpath("lib", "libc10.so").read_bytes())
    elif kind == "folder":
        path.mkdir()
    code = (
        "import torch, torchtpu\n"
        "for _ in range(2):\n"
        "    try: torch.ones(1, device='tpu')\n"
        "    except torchtpu.DeviceError as e: print(str(e).splitlines()[0])\n"
    )
    lines = run_python(code, TORCHTPU_PLUGIN=str(path)).stdout.strip().split("\n")
    assert len(lines) == 2 and all(str(path) in line for line in lines)


def test_client_that_does_not_start(run_python):
    fake = os.environ.get("TORCHTPU_TEST_FAKE_PLUGIN")
    if not fake:
        pytest.skip("TORCHTPU_TEST_FAKE_PLUGIN names the fake plugin of the C tests")
    code = (
        "import torch, torchtpu\n"
        "try: torch.ones(1, device='tpu')\n"
        "except torchtpu.DeviceError as e: print('DeviceError', e)\n"
    )
    environment = dict(TORCHTPU_PLUGIN=fake, FAKE_PLUGIN="fail=PJRT_Client_Create@1+:14")
    assert "DeviceError" in run_python(code, **environment).stdout


def test_out_of_memory_keeps_the_parameters(run_python):
    fake = os.environ.get("TORCHTPU_TEST_FAKE_PLUGIN")
    if not fake:
        pytest.skip("TORCHTPU_TEST_FAKE_PLUGIN names the fake plugin of the C tests")
    code = (
        "import torch, torchtpu\n"
        "w = torch.full((1000,), 3., device='tpu')\n"
        "keep = w.cpu()\n"
        "try: (w[:, None] + torch.zeros(2000, device='tpu')).sum().item()\n"
        "except torch.OutOfMemoryError as e: print('out of memory')\n"
        "w.cpu(); print((w + 1).shape)\n"
    )
    environment = dict(TORCHTPU_PLUGIN=fake, FAKE_PLUGIN="memory=1000000")
    assert run_python(code, **environment).stdout.split("\n")[:2] == ["out of memory", "torch.Size([1000])"]


def test_another_torch_without_a_compiler_says_what_to_do(run_python, tmp_path):
    code = (
        "import torch, warnings\n"
        "torch.__version__ = '9.9.0'\n"
        "warnings.simplefilter('always')\n"
        "import torchtpu\n"
        "print((torch.ones(1) + 1).item())\n"
        "try: torchtpu.stats()\n"
        "except ImportError as e: print('ImportError', e)\n"
    )
    environment = dict(PATH=str(tmp_path), CXX="", TORCHTPU_CACHE_DIR=str(tmp_path), TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    result = run_python(code, **environment)
    assert "build-shim" in result.stderr and "9.9.0" in result.stderr and "C++ compiler" in result.stderr
    assert result.stdout.startswith("2.0\nImportError")
