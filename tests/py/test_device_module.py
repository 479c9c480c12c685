"""torch.tpu, torch.accelerator, torch.device("tpu"): the device module's contract with PyTorch."""

import copy
import os
import re
import threading
import weakref

import pytest
import torch
import torch.nn as nn

import torchtpu


def test_autoload_needs_no_import(run_python):
    from importlib.metadata import entry_points

    if not any(e.value == "torchtpu:_autoload" for e in entry_points(group="torch.backends")):
        pytest.skip("the package is not installed: its entry point cannot be seen")
    out = run_python("import torch; print((torch.ones(2, device='tpu') + 1).tolist())").stdout
    assert out.strip() == "[2.0, 2.0]"


def test_import_starts_nothing(run_python):
    out = run_python(
        "import torchtpu, torch, sys\n"
        "maps = open('/proc/self/maps').read()\n"
        "print(torch.tpu.is_initialized(), torch.tpu.is_available(), 'pjrt' in maps)\n"
        "print(sorted(m for m in ('rich', 'click', 'torch._dynamo') if m in sys.modules))\n"
    ).stdout.split("\n")
    assert out[0] == "False True False"
    assert out[1] == "[]"


def test_device_names_and_indices():
    x = torch.zeros(2, device="tpu")
    assert x.device == torch.device("tpu:0") == torchtpu.device(0) and x.is_tpu
    assert x.to("tpu") is x and x.to(torch.device("tpu", 0)) is x and x.tpu() is x
    assert torch.empty_like(x).device == x.new_ones(3).device == x.device
    assert torch.tpu.device_count() == torch.accelerator.device_count() >= 1
    assert torch.tpu.is_available() and torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("tpu")
    assert torch.tpu.get_device_name() == torch.tpu.get_device_properties().name
    assert torch.tpu.get_device_properties("tpu:0").index == 0
    assert torch.tpu.get_device_capability() == (0, 0) or torch.tpu.get_device_name().startswith("TPU")


@pytest.mark.parametrize("missing", ["tpu:97", 97])
def test_device_that_does_not_exist(missing):
    with pytest.raises(RuntimeError, match="tpu:97 does not exist"):
        torch.tpu.set_device(missing)
    with pytest.raises(RuntimeError, match="97"):
        torch.zeros(1, device="tpu:97")
    assert torch.zeros(1, device="tpu").item() == 0


def test_several_devices(run_python):
    out = run_python(
        "import torchtpu, torch\n"
        "assert torch.tpu.device_count() == 3\n"
        "x = torch.arange(3., device='tpu:2'); y = x.to('tpu:1')\n"
        "assert x.device.index == 2 and y.device.index == 1 and (y + 1).device.index == 1\n"
        "assert torch.tpu.current_device() == 0\n"
        "with torch.tpu.device(1):\n"
        "    assert torch.tpu.current_device() == 1 and torch.ones(1, device='tpu').device.index == 1\n"
        "assert torch.tpu.current_device() == 0\n"
        "with torch.tpu.device_of(x): assert torch.tpu.current_device() == 2\n"
        "torch.tpu.set_device('tpu:1'); assert torch.zeros(1, device='tpu').device.index == 1\n"
        "torch.accelerator.set_device_index(0); assert torch.tpu.current_device() == 0\n"
        "try: x + y\n"
        "except RuntimeError as e: print('device' in str(e))\n"
        "print((x.cpu() + y.cpu()).tolist(), torch.tpu.memory_allocated(2) > 0)\n",
        TORCHTPU_CPU_DEVICES="3",
    ).stdout.split("\n")
    assert out[0] == "True" and out[1] == "[0.0, 2.0, 4.0] True"


def test_default_device_and_context():
    with torch.device("tpu"):
        assert torch.ones(3).is_tpu and torch.arange(2).is_tpu
    torch.set_default_device("tpu")
    try:
        assert torch.eye(2).is_tpu and nn.Linear(2, 2).weight.is_tpu
    finally:
        torch.set_default_device(None)
    assert torch.ones(1).is_cpu


def test_streams():
    default, s = torch.tpu.default_stream(), torch.tpu.Stream()
    assert isinstance(s, torch.Stream) and s.device.type == "tpu" and s != default
    assert torch.tpu.current_stream() == default
    with torch.tpu.stream(s):
        assert torch.tpu.current_stream() == s == torch.accelerator.current_stream()
        x = torch.ones(4, device="tpu") * 3
    assert torch.tpu.current_stream() == default
    default.wait_stream(s)
    s.synchronize()
    assert s.query() and x.sum().item() == 12
    with torch.tpu.stream(None):
        assert torch.tpu.current_stream() == default


def test_events():
    start, end = torch.tpu.Event(enable_timing=True), torch.tpu.Event(enable_timing=True)
    start.record()
    x = torch.ones(512, 512, device="tpu")
    for _ in range(4):
        x = x @ x * 1e-3
    end.record()
    end.synchronize()
    assert end.query() and 0 < start.elapsed_time(end) < 60_000
    plain = torch.tpu.current_stream().record_event()
    plain.wait()
    plain.synchronize()
    assert plain.query()
    with pytest.raises(NotImplementedError):
        torch.tpu.Event(interprocess=True)


def test_memory():
    import gc

    gc.collect()
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated()
    x = torch.ones(256, 1024, device="tpu") + 1
    torch.tpu.synchronize()
    assert torch.tpu.memory_allocated() - before >= x.nbytes
    torch.tpu.reset_peak_memory_stats()
    y = x * 2
    torch.tpu.synchronize()
    peak = torch.tpu.max_memory_allocated()
    assert peak >= before + x.nbytes + y.nbytes
    del x, y
    gc.collect()
    torch.tpu.synchronize()
    assert torch.tpu.memory_allocated() - before < 4096
    assert torch.tpu.max_memory_allocated() == peak
    torch.tpu.reset_peak_memory_stats()
    assert torch.tpu.max_memory_allocated() < peak
    stats = torch.tpu.memory_stats()
    assert stats["allocated_bytes.all.current"] == torch.tpu.memory_allocated()
    free, total = torch.tpu.mem_get_info()
    assert 0 < free <= total
    assert "tpu:0" in torch.tpu.memory_summary() and "peak" in torch.tpu.memory_summary(abbreviated=True)
    torch.tpu.empty_cache()


def test_tied_parameters_and_optimizer_survive_the_move():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
            self.head.weight = self.token.weight

        def forward(self, i):
            return self.head(self.token(i))

    torch.manual_seed(0)
    model = Tied()
    weight, watch = model.token.weight, weakref.ref(model.token.weight)
    before = weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    weight.grad = torch.ones_like(weight)
    model.to("tpu")
    assert model.token.weight is model.head.weight is weight is watch() and weight.is_tpu
    assert weight.grad.is_tpu and weight.grad.sum().item() == weight.numel()
    optimizer.zero_grad()
    model(torch.tensor([1, 2], device="tpu")).sum().backward()
    optimizer.step()
    assert not torch.equal(model.head.weight.detach().cpu(), before)
    model.cpu()
    assert model.token.weight is model.head.weight is weight and weight.is_cpu


def test_move_while_the_graph_is_alive():
    layer = nn.Linear(2, 2)
    loss = layer(torch.ones(1, 2)).sum()  # holds references to the parameters
    weight = layer.weight
    layer.to("tpu")
    assert layer.weight is weight and weight.is_tpu
    layer(torch.ones(1, 2, device="tpu")).sum().backward()
    assert weight.grad.is_tpu
    del loss


def test_other_devices_convert_as_before():
    layer = nn.Linear(2, 2)
    weight = layer.weight
    layer.double()
    assert layer.weight is weight and weight.dtype == torch.float64
    layer.to("meta")
    assert layer.weight.is_meta
    assert nn.Linear(2, 2, device="meta").to_empty(device="tpu").weight.is_tpu


def test_module_methods():
    m = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).tpu()
    assert all(v.is_tpu for v in m.state_dict().values())
    clone = copy.deepcopy(m)
    assert clone[0].weight.is_tpu and clone[0].weight is not m[0].weight
    assert torch.nn.utils.rnn.pack_sequence([torch.ones(2)]).to("tpu").data.is_tpu
    assert torch.UntypedStorage(8, device="tpu").device.type == "tpu"


def test_printing_compiles_nothing():
    x = torch.linspace(-1, 1, 40, device="tpu").reshape(5, 8)
    torch.tpu.synchronize()
    before = torchtpu.stats()
    text = repr(x) + str(x[1:3, ::2]) + repr(x.to(torch.float64))
    after = torchtpu.stats()
    # The slice and the cast are programs; printing adds none beyond them.
    x[1:3, ::2].cpu()
    assert "device='tpu:0'" in text
    plain = torch.linspace(-1, 1, 40).reshape(5, 8)
    assert "".join(repr(x).split()) == "".join(repr(plain).split()).replace("])", "],device='tpu:0')")
    assert after["programs_run"] - before["programs_run"] <= 2
    again = torchtpu.stats()["programs_compiled"]
    repr(torch.ones(3, device="tpu").requires_grad_()), repr(nn.Parameter(x))
    assert torchtpu.stats()["programs_compiled"] - again <= 1  # the ones


def test_fork_gives_a_clear_error():
    x = torch.ones(2, device="tpu")
    x.sum().item()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        text = ""
        try:
            text += f"{torch.tpu.is_available()} {torch.tpu.device_count()} "
            torch.manual_seed(1)
            text += f"{torch.ones(3).sum().item()} "
            torch.tpu.synchronize()
        except RuntimeError as error:
            text += str(error)
        finally:
            os.write(write, text.encode())
            os._exit(0)
    os.close(write)
    text = os.fdopen(read).read()
    os.waitpid(child, 0)
    assert text.startswith("False 0 3.0") and "spawn" in text


def test_forked_child_cannot_compute_but_does_not_hang(run_python):
    out = run_python(
        "import torch, torchtpu, os, signal\n"
        "x = torch.ones(2, device='tpu'); x.sum().item()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    signal.alarm(20)\n"
        "    try: print((x + 1).cpu())\n"
        "    except RuntimeError as e: print('spawn' in str(e), flush=True)\n"
        "    del x\n"
        "    os._exit(0)\n"
        "_, status = os.waitpid(child, 0)\n"
        "print(status, (x + 1).sum().item())\n"
    ).stdout.split("\n")
    assert out[:2] == ["True", "0 4.0"]


def test_backward_and_threads():
    results = {}

    def work(k):
        w = torch.full((8, 8), float(k), device="tpu", requires_grad=True)
        for i in range(5):
            (w @ torch.full((8, 8), float(i), device="tpu")).sum().backward()
        results[k] = w.grad.cpu()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert all(torch.equal(results[k], torch.full((8, 8), 80.0)) for k in range(3))


def test_exit_with_pending_work_does_not_hang(run_python):
    run_python(
        "import torch, torchtpu\n"
        "torchtpu.set_eager_mode('fused')\n"
        "x = torch.ones(64, 64, device='tpu')\n"
        "for _ in range(50): x = x @ x * 0.01\n",
        timeout=60,
    )


def test_command_line(run_python):
    out = run_python("from torchtpu.cli import main; main(['info'], standalone_mode=False)", COLUMNS="200").stdout
    assert "torchtpu" in out and "plugin" in out and "tpu:0" in out and re.search(r"TORCHTPU_CACHE_DIR", out)
    assert (
        "programs"
        in run_python("from torchtpu.cli import main; main(['cache', 'stats'], standalone_mode=False)").stdout
    )
