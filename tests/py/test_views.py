"""Storage, views and mutation: what aliases on the CPU aliases here, and nothing else does."""

import itertools

import pytest
import torch
from helpers import assert_same, check

pytestmark = pytest.mark.usefixtures("no_fallback")


def grid(*shape, dtype=torch.float32):
    n = 1
    for s in shape:
        n *= s
    return torch.arange(n).reshape(shape).to(dtype)


READS = {
    "transpose": lambda x: x.transpose(0, 2),
    "permute": lambda x: x.permute(2, 0, 1),
    "slice": lambda x: x[:, 1:3, ::2],
    "slice_of_slice": lambda x: x[1:][:, ::2][..., 1:],
    "select": lambda x: x.select(1, -1),
    "expand": lambda x: x[:, :1].expand(-1, 3, -1),
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "unfold": lambda x: x.unfold(2, 2, 1),
    "flatten_of_transpose": lambda x: x.transpose(1, 2).reshape(-1),
    "squeeze": lambda x: x[:, :1].squeeze(1).unsqueeze(-1),
    "movedim": lambda x: x.movedim(0, -1),
    "as_strided": lambda x: x.as_strided((4, 3), (2, 5), 3),
    "as_strided_overlap": lambda x: x.as_strided((5, 4), (3, 1), 2),
    "as_strided_repeat": lambda x: x.as_strided((3, 4), (0, 1), 1),
    "view": lambda x: x.view(4, -1),
    "unflatten": lambda x: x.flatten().unflatten(0, (4, -1)),
    "flip": lambda x: x.flip(0, 2),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "split": lambda x: torch.split(x, 2, 1),
    "unbind": lambda x: x.unbind(1),
    "chunk": lambda x: x.chunk(3, 2),
    "swapaxes_slice": lambda x: x.swapaxes(0, 1)[1:, 0],
    "t_of_2d": lambda x: x[0].t()[1:],
    "movedim_unfold": lambda x: x.movedim(2, 0).unfold(0, 3, 2),
}


@pytest.mark.parametrize("name", READS)
def test_reading_a_view(name):
    check(READS[name], grid(2, 4, 5))
    check(lambda x: [v + 1 for v in torch.utils._pytree.tree_leaves(READS[name](x))], grid(2, 4, 5), strides=False)


WRITABLE = [n for n in READS if n not in ("expand", "as_strided_overlap", "as_strided_repeat", "unfold", "movedim_unfold",
                                          "flatten_of_transpose", "flip")]  # fmt: skip


@pytest.mark.parametrize("name", WRITABLE)
def test_writing_through_a_view(name, every_mode):
    def write(x):
        for i, view in enumerate(torch.utils._pytree.tree_leaves(READS[name](x))):
            view.mul_(2).add_(100 * (i + 1))
        return x

    check(write, grid(2, 4, 5))


@pytest.mark.parametrize(
    "first,second", list(itertools.product(["transpose", "slice", "select", "diagonal"], repeat=2))
)
def test_views_of_views_share(first, second):
    def write(x):
        a = READS[first](x)
        shape3 = a if a.dim() == 3 else a.unsqueeze(0)
        b = READS[second](shape3)
        b.fill_(-1)
        a.add_(0.5)
        return x, a, b

    check(write, grid(4, 4, 5))


def test_a_read_keeps_its_value_before_a_later_write(every_mode):
    def run(x):
        y, z, view = x * 2, x[:, 1:3] + 1, x[0]
        x[:, 2:5] = 2
        x.add_(1)
        y.sub_(4)
        return x, y, z, view

    check(run, grid(4, 6))


def test_copy_between_overlapping_regions():
    def run(x):
        x[1:].copy_(x[:-1].clone())
        return x

    check(run, grid(6, 3))


def test_storage_offset_and_sharing():
    x = torch.arange(20.0, device="tpu")
    view = x[5:15].reshape(2, 5)
    assert view.storage_offset() == 5 and view.data_ptr() == x.data_ptr() + 5 * 4
    assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert view._base is x and view._is_view()
    other = torch.arange(20.0, device="tpu")
    low, high = sorted((x.data_ptr(), other.data_ptr()))
    assert high - low >= x.nbytes  # ranges of living storages are disjoint
    assert x.is_set_to(x) and not x.is_set_to(other)


def test_detach_and_data_share():
    w = torch.ones(3, device="tpu", requires_grad=True)
    w.detach().add_(1)
    w.data.mul_(3)
    assert w.tolist() == [6.0, 6.0, 6.0]
    w.data = torch.arange(6.0, device="tpu").reshape(2, 3)
    assert w.shape == (2, 3) and w.requires_grad and (w * 2).sum().item() == 30


def test_version_counter_protects_backward():
    x = torch.ones(3, device="tpu", requires_grad=True)
    y = x.exp()
    y.add_(1)
    assert y._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_resize_and_set():
    def run(x):
        y = torch.empty(0, device=x.device)
        y.set_(x.untyped_storage(), 2, (2, 2), (2, 1))
        y[0, 0] = 50
        z = grid(2, 3).to(x.device)
        z.resize_(2, 2)
        z.add_(1)
        grown = torch.ones(2, device=x.device).resize_(4)[:2]
        swapped = torch.zeros(2, device=x.device)
        swapped.set_(x)
        swapped[1] = -7
        return x, y, z, grown, swapped

    check(run, grid(6))


def test_resize_storage():
    x = torch.arange(4.0, device="tpu")
    x.untyped_storage().resize_(0)
    assert x.untyped_storage().nbytes() == 0
    x.untyped_storage().resize_(16)
    x.fill_(3)
    assert x.sum().item() == 12


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.int16, torch.float64, torch.int64])
def test_dtype_views_write_through(dtype):
    def run(x):
        bits = x.view(dtype)
        bits[:1] = 1
        return bits, x

    check(run, torch.tensor([1.0, -2.0, 0.5, 3.25]))


def test_complex_and_real_views_write_through():
    def run(x):
        c = torch.view_as_complex(x)
        c.mul_(2j)
        c.imag.add_(1)
        torch.view_as_real(c)[0, 0] = -5
        c.real[1] = 9
        return x, c

    check(run, grid(3, 2))


def test_conjugate_and_negative_bits():
    def run(z):
        c = z.conj()
        imaginary = c.imag
        return (
            c + 0,
            imaginary,
            imaginary.clone(),
            c.resolve_conj(),
            torch.stack([imaginary, imaginary]),
            c.sum(),
            z @ c,
        )

    check(run, torch.tensor([1 + 2j, 3 - 4j]))
    z = torch.tensor([1 + 2j, 3 - 4j], device="tpu")
    assert z.conj().is_conj() and z.conj().imag.is_neg()
    assert z.conj().cpu().tolist() == [1 - 2j, 3 + 4j]
    target = torch.zeros(2, dtype=torch.complex64, device="tpu")
    target.conj().copy_(z)
    assert target.cpu().tolist() == [1 - 2j, 3 + 4j]


def test_memory_formats():
    def run(x):
        last = x.to(memory_format=torch.channels_last)
        return last, last + 1, last.contiguous(), torch.zeros_like(last), last.transpose(1, 2), last.flatten(1)

    check(run, torch.linspace(-1, 1, 2 * 3 * 4 * 5).reshape(2, 3, 4, 5))


def test_zero_sizes_and_zero_dims(every_mode):
    def run(x, scalar):
        empty = x[:0]
        empty.add_(1)
        scalar[...] = 4
        return empty, empty.sum(), x[:, :0].reshape(0, 7), scalar.expand(3), scalar.view(1), scalar[None], x[1, 2]

    check(run, grid(3, 4), torch.tensor(3.0))


def test_host_copies_of_strided_views():
    x = torch.arange(24.0, device="tpu").reshape(2, 3, 4)
    parent = torch.zeros(24)
    parent[::2].copy_(x.flatten()[::2])
    assert parent[2].item() == 2 and parent[3].item() == 0
    x[1:, :, 1] = torch.tensor([-1.0, -2.0, -3.0])
    expected = torch.arange(24.0).reshape(2, 3, 4)
    expected[1:, :, 1] = torch.tensor([-1.0, -2.0, -3.0])
    assert_same(x, expected)
    permuted = torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)[1:, :, ::2]
    assert_same(permuted.to("tpu"), permuted, strides=False)
    assert permuted.to("tpu").stride() == torch.empty_like(permuted).stride()


def test_safetensors_sees_sharing(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    x = torch.arange(6.0, device="tpu")
    with pytest.raises(RuntimeError, match="share memory"):
        safetensors.save_file({"a": x, "b": x[:3]}, tmp_path / "x.safetensors")
    safetensors.save_file({"a": x.cpu()}, tmp_path / "x.safetensors")
    assert safetensors.load_file(tmp_path / "x.safetensors")["a"].to("tpu").sum().item() == 15
