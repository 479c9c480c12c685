"""Saving, loading, copying and exchanging tensors: the host is the common ground."""

import copy
import io
import pickle

import numpy
import pytest
import torch
import torch.nn as nn
from helpers import assert_same


def saved(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer


def loaded(buffer, **kwargs):
    buffer.seek(0)
    return torch.load(buffer, **kwargs)


def state():
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).to("tpu")
    return {
        "a": x,
        "row": x[1:],
        "t": x.t(),
        "half": x.to(torch.bfloat16),
        "i": torch.arange(3, device="tpu"),
        "p": nn.Parameter(x * 2),
        "empty": x[:0],
        "complex": torch.complex(x, x),
    }


@pytest.mark.parametrize("location", ["cpu", "tpu", "tpu:0", torch.device("tpu"), {"tpu:0": "cpu"}, None], ids=str)
def test_map_location(location):
    original = state()
    result = loaded(saved(original), map_location=location, weights_only=True)
    expected = "cpu" if location == "cpu" or isinstance(location, dict) else "tpu"
    for name, value in original.items():
        assert result[name].device.type == expected, name
        assert_same(result[name].detach(), value.detach().cpu(), strides=False)
        assert result[name].stride() == value.stride() and result[name].requires_grad == value.requires_grad
    result["a"][1, 0] = 99
    assert result["row"][0, 0].item() == 99 and result["t"][0, 1].item() == 99  # sharing survives


def test_map_location_by_function():
    assert loaded(saved(state()), map_location=lambda storage, _: storage)["a"].is_cpu


def test_cpu_checkpoint_to_the_device():
    x = torch.arange(6.0).reshape(2, 3)
    assert loaded(saved({"x": x}), map_location="tpu")["x"].is_tpu


def test_checkpoint_opens_where_there_is_no_device(run_python, tmp_path):
    torch.save({"x": torch.arange(4.0, device="tpu")}, tmp_path / "x.pt")
    code = f"import torch; print(torch.load({str(tmp_path / 'x.pt')!r}, map_location='cpu')['x'].tolist())"
    assert run_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout.strip() == "[0.0, 1.0, 2.0, 3.0]"


def test_saving_takes_a_snapshot_of_pending_work(every_mode):
    m = nn.Linear(3, 2).to("tpu")
    snapshots = []
    for i in range(3):
        with torch.no_grad():
            m.weight.fill_(i).add_(0.5)
        snapshots.append(saved(m.state_dict()))
        with torch.no_grad():
            m.weight.add_(100)
    assert [loaded(s, map_location="cpu")["weight"][0, 0].item() for s in snapshots] == [0.5, 1.5, 2.5]


def test_resume_is_the_same_as_no_interruption():
    def build():
        torch.manual_seed(0)
        m = nn.Linear(4, 2).to("tpu")
        o = torch.optim.AdamW(m.parameters(), 0.05)
        return m, o, torch.optim.lr_scheduler.StepLR(o, 2, 0.5)

    def run(m, o, s, start, end):
        for i in range(start, end):
            o.zero_grad()
            x = torch.randn(3, 4, generator=torch.Generator().manual_seed(i)).to("tpu")
            (m(x) ** 2).sum().backward()
            o.step()
            s.step()

    m, o, s = build()
    run(m, o, s, 0, 6)
    m1, o1, s1 = build()
    run(m1, o1, s1, 0, 3)
    state = loaded(saved([m1.state_dict(), o1.state_dict(), s1.state_dict()]), map_location="cpu", weights_only=True)
    m2, o2, s2 = build()
    for target, value in zip((m2, o2, s2), state):
        target.load_state_dict(value)
    assert o2.state[m2.weight]["exp_avg"].is_tpu
    run(m2, o2, s2, 3, 6)
    assert torch.equal(m.weight, m2.weight)


def test_copies():
    x = torch.arange(3.0, device="tpu", requires_grad=True)
    shallow, deep = copy.copy(x.detach()), copy.deepcopy(x)
    assert deep.is_tpu and deep.requires_grad and deep.data_ptr() != x.data_ptr()
    assert shallow.tolist() == deep.tolist() == [0, 1, 2]
    view = torch.arange(6.0, device="tpu").reshape(2, 3).t()
    assert copy.deepcopy(view).stride() == view.stride()
    m = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).to("tpu")
    o = torch.optim.Adam(m.parameters())
    m(torch.ones(4, 3, device="tpu")).sum().backward()
    o.step()
    m2 = copy.deepcopy(m)
    with torch.no_grad():
        m2[0].weight.zero_()
    assert m[0].weight.abs().sum().item() > 0 and len(copy.deepcopy(o).state) == 4
    assert_same(pickle.loads(pickle.dumps(m))[1].running_mean, m[1].running_mean.cpu())
    pickled = pickle.loads(pickle.dumps(x.detach()))
    assert pickled.is_tpu and pickled.tolist() == [0, 1, 2]


def test_numpy_and_python():
    x = torch.arange(6.0, device="tpu").reshape(2, 3)
    with pytest.raises(TypeError, match="cpu"):
        x.numpy()
    assert x.cpu().numpy().tolist() == x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert torch.from_numpy(numpy.arange(3)).to("tpu").tolist() == [0, 1, 2]
    assert torch.as_tensor(numpy.float32(2.5), device="tpu").item() == 2.5
    assert torch.tensor([x[0, 1], x[1, 2]], device="tpu").tolist() == [1, 5]
    assert [row.tolist() for row in x] == x.tolist() and f"{x[0, 1]:.1f}" == "1.0"
    assert int(x[1, 0]) == 3 and bool(x[0, 1]) and [10, 11, 12][torch.tensor(2, device="tpu")] == 12
    assert x.new_tensor([1.5]).is_tpu and torch.asarray([True], device="tpu").dtype == torch.bool


def test_dlpack_through_the_host():
    x = torch.arange(4.0, device="tpu") * 2
    assert torch.from_dlpack(x.cpu()).tolist() == [0, 2, 4, 6]
    assert numpy.from_dlpack(x.cpu()).tolist() == [0, 2, 4, 6]
    assert torch.from_dlpack(numpy.arange(3.0)).to("tpu").tolist() == [0, 1, 2]


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, i):
        return torch.full((3,), float(i)), i


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("pin", [False, True])
def test_data_loader(workers, pin):
    torch.ones(1, device="tpu").sum().item()  # the device runs before the workers are forked
    total = 0.0
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=workers, pin_memory=pin)
    for x, y in loader:
        total += ((x.to("tpu", non_blocking=True) * 2).sum() + y.to("tpu").sum()).item()
    assert total == 45 * 7


def test_loading_threads():
    import threading

    results = [None] * 4

    def copy_many(k):
        results[k] = sum(torch.full((5,), float(i), device="cpu").to("tpu").sum().item() for i in range(20))

    threads = [threading.Thread(target=copy_many, args=(k,)) for k in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert results == [950.0] * 4


def test_non_blocking_copy_does_not_see_later_writes():
    host = torch.ones(1000)
    device = host.to("tpu", non_blocking=True)
    host.zero_()
    assert device.sum().item() == 1000
    back = device.to("cpu", non_blocking=True)
    device.zero_()
    torch.tpu.synchronize()
    assert back.sum().item() == 1000
