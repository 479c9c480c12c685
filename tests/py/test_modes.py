"""Eager modes, statistics, the program cache: what is compiled, when, and how often."""

import threading

import pytest
import torch
import torch.nn.functional as F

import torchtpu


def test_choosing_a_mode():
    before = torchtpu.get_eager_mode()
    with torchtpu.eager_mode("fused"):
        assert torchtpu.get_eager_mode() == "fused"
        with torchtpu.eager_mode("debug"):
            assert torchtpu.get_eager_mode() == "debug"
        assert torchtpu.get_eager_mode() == "fused"
    assert torchtpu.get_eager_mode() == before
    with pytest.raises(ValueError, match="debug, strict, fused"):
        torchtpu.set_eager_mode("lazy")
    with pytest.raises(KeyError), torchtpu.eager_mode("fused"):
        raise KeyError
    assert torchtpu.get_eager_mode() == before


def test_mode_from_the_environment(run_python):
    code = "import torchtpu; print(torchtpu.get_eager_mode())"
    assert run_python(code, TORCHTPU_EAGER_MODE="fused").stdout.strip() == "fused"
    early = "import torchtpu, torch; torchtpu.set_eager_mode('debug'); torch.ones(1, device='tpu'); " + code
    assert run_python(early, TORCHTPU_EAGER_MODE="fused").stdout.strip() == "debug"
    bad = run_python("import torch, torchtpu; torch.tpu.init()", TORCHTPU_EAGER_MODE="quick", check=False)
    assert bad.returncode and "TORCHTPU_EAGER_MODE" in bad.stderr and "debug" in bad.stderr


def program(x):
    x = x.clone()
    y = F.gelu(x @ x) + x.sin()
    y[1:] *= 2
    z = y.view(-1)[3:7]
    z.add_(1)
    return y.softmax(1), z, y.sum(), (y > 0).nonzero()


def test_modes_agree():
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    expected = program(x)
    for mode in torchtpu.modes.MODES:
        with torchtpu.eager_mode(mode):
            for got, want in zip(program(x.to("tpu")), expected):
                torch.testing.assert_close(got.cpu(), want, rtol=1e-5, atol=1e-5)


def test_switching_with_work_pending():
    x = torch.ones(3, device="tpu")
    for mode in ("fused", "strict", "fused", "debug", "fused", "strict"):
        torchtpu.set_eager_mode(mode)
        x = x + 1
    assert x.tolist() == [7.0] * 3


def delta(function, *names):
    before = torchtpu.stats()
    function()
    torch.tpu.synchronize()
    after = torchtpu.stats()
    return [after[n] - before[n] for n in names]


def test_fused_runs_one_program():
    x = torch.ones(16, device="tpu")

    def chain():
        y = x
        for _ in range(10):
            y = y * 0.5 + 1
        return y.sum().item()

    with torchtpu.eager_mode("strict"):
        assert delta(chain, "programs_run")[0] >= 20
    with torchtpu.eager_mode("fused"):
        chain()
        runs, compiled = delta(chain, "programs_run", "programs_compiled")
    assert runs == 1 and compiled == 0


def test_fused_cuts_at_its_budget(run_python):
    out = run_python(
        "import torch, torchtpu\n"
        "torchtpu.set_eager_mode('fused')\n"
        "x = torch.ones(4, device='tpu')\n"
        "for _ in range(95): x = x + 1\n"
        "print(x.tolist(), torchtpu.stats()['programs_run'])\n",
        TORCHTPU_FUSED_NODES="10",
    ).stdout
    values, runs = out.rsplit(" ", 1)
    assert values == str([96.0] * 4) and 10 <= int(runs) <= 12


def test_changing_scalars_compile_few_programs(every_mode):
    x = torch.ones(5, 7, device="tpu")

    def steps():
        y = x
        for i in range(1, 40):
            y = (y * (1.0 / i)).add_(x, alpha=0.1 * i)
        assert torch.isfinite(y.cpu()).all()

    compiled = delta(steps, "programs_compiled")[0]
    assert compiled <= 6, torchtpu.explain()  # each of both operators: constant, then input


def test_values_of_changing_scalars():
    x, y = torch.ones(3, device="tpu"), torch.ones(3)
    for i in range(20):
        s = 1.0 / (i + 1)
        x, y = (t.mul(s).add_(1, alpha=s).clamp_(max=5 + s) + i for t in (x, y))
        torch.testing.assert_close(x.cpu(), y)


def test_learning_rate_schedules_do_not_recompile():
    w = torch.nn.Parameter(torch.ones(4, device="tpu"))
    optimizer = torch.optim.SGD([w], 0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    def step():
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.step()
        schedule.step()

    for _ in range(3):
        step()
    assert delta(lambda: [step() for _ in range(10)], "programs_compiled") == [0], torchtpu.explain()


def test_slices_at_moving_positions_compile_few_programs():
    x = torch.arange(100.0, device="tpu")

    def walk():
        for i in range(0, 60, 3):
            assert x[i : i + 4].sum().item() == 4 * i + 6

    assert delta(walk, "programs_compiled")[0] <= 5, torchtpu.explain()


def test_statistics():
    torchtpu.stats()
    x = torch.full((3, 5), 2.0, device="tpu")
    recorded, hits, compiled, down, moved = delta(
        lambda: [(x * 3).cpu() for _ in range(4)],
        "ops_recorded", "program_hits", "programs_compiled", "downloads", "download_bytes",
    )  # fmt: skip
    assert recorded >= 4 and hits >= 3 and compiled <= 2 and down == 4 and moved == 4 * 60
    stats = torchtpu.stats()
    assert isinstance(stats["fallbacks"], dict)
    assert all({"key", "milliseconds", "why"} <= set(c) and c["why"] for c in stats["compiles"])


def test_explain(run_python, tmp_path):
    code = "import torch, torchtpu; (torch.ones(3, device='tpu') * 2).cpu(); print(torchtpu.explain())"
    out = run_python(code, TORCHTPU_CACHE_DIR=str(tmp_path)).stdout
    assert "programs compiled, the latest first" in out and " ms " in out


def test_a_second_process_compiles_nothing(run_python, tmp_path):
    code = (
        "import torch, torchtpu\n"
        "import torch.nn.functional as F\n"
        "m = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.GELU(), torch.nn.Linear(5, 3)).to('tpu')\n"
        "o = torch.optim.AdamW(m.parameters(), 1e-2)\n"
        "for i in range(4):\n"
        "    o.zero_grad(); F.cross_entropy(m(torch.ones(4, 6, device='tpu')), torch.tensor([0, 1, 2, 0], device='tpu')).backward(); o.step()\n"
        "torch.tpu.synchronize(); s = torchtpu.stats(); print(s['programs_compiled'], s['disk_hits'])\n"
    )
    environment = dict(TORCHTPU_CACHE_DIR=str(tmp_path / "cache"))
    first = run_python(code, **environment).stdout.split()
    second = run_python(code, **environment).stdout.split()
    assert int(first[0]) > 5 and second[0] == "0" and int(second[1]) > 5


def test_damaged_cache_files_are_misses(run_python, tmp_path):
    code = "import torch, torchtpu; print((torch.ones(3, device='tpu') * 2 + 1).tolist(), torchtpu.stats()['programs_compiled'])"
    environment = dict(TORCHTPU_CACHE_DIR=str(tmp_path))
    first = run_python(code, **environment).stdout
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.stat().st_size > 200:
            raw = bytearray(path.read_bytes())
            raw[len(raw) // 2] ^= 0xFF
            path.write_bytes(raw)
    assert run_python(code, **environment).stdout == first
    for path in tmp_path.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:10])
    assert run_python(code, **environment).stdout == first


@pytest.mark.parametrize("place", ["file", "read-only", "missing-parent"])
def test_an_unusable_cache_folder_is_no_error(run_python, tmp_path, place):
    folder = tmp_path / "cache"
    if place == "file":
        folder.write_text("not a folder")
    elif place == "read-only":
        folder.mkdir(mode=0o500)
    else:
        folder = tmp_path / "no" / "such" / "parent"
    code = "import torch, torchtpu; print((torch.ones(3, device='tpu') + 1).tolist())"
    assert run_python(code, TORCHTPU_CACHE_DIR=str(folder)).stdout.strip() == "[2.0, 2.0, 2.0]"


def test_three_threads_share_one_compile():
    def work():
        (torch.ones(3, 11, device="tpu") * 2.5).cpu()

    def together():
        threads = [threading.Thread(target=work) for _ in range(3)]
        [t.start() for t in threads]
        [t.join() for t in threads]

    assert delta(together, "programs_compiled")[0] <= 2


@pytest.mark.plugin
@pytest.mark.parametrize("package", ["xla_cpu_pjrt", "lammps_jax_pjrt_cpu"])
def test_other_plugins(run_python, package):
    from torchtpu import _plugins

    path = next((p.path for p in _plugins.cpu_plugins() if p.source == package), None)
    if path is None:
        pytest.skip(f"{package} is not installed")
    code = (
        "import torch, torchtpu\n"
        "m = torch.nn.Linear(4, 2).to('tpu'); m(torch.ones(3, 4, device='tpu')).sum().backward()\n"
        "print(m.weight.grad.sum().item(), torch.tpu.get_device_properties().plugin)\n"
    )
    out = run_python(code, TORCHTPU_PLUGIN=path).stdout.split()
    assert float(out[0]) == 24 and out[1] == path
