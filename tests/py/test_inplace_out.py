"""In-place and out= forms: aliasing, resizing, casting and the errors PyTorch has for them."""

import pytest
import torch
from helpers import check

pytestmark = pytest.mark.usefixtures("no_fallback")


def values(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


IN_PLACE = {
    "add_": lambda x, y: x.add_(y, alpha=2),
    "sub_": lambda x, y: x.sub_(y),
    "mul_": lambda x, y: x.mul_(y),
    "div_": lambda x, y: x.div_(y),
    "pow_": lambda x, y: x.abs_().pow_(2),
    "exp_": lambda x, y: x.exp_(),
    "clamp_": lambda x, y: x.clamp_(-0.5, 0.5),
    "relu_": lambda x, y: torch.relu_(x),
    "sigmoid_": lambda x, y: x.sigmoid_(),
    "masked_fill_": lambda x, y: x.masked_fill_(y > 0, 3.5),
    "copy_": lambda x, y: x.copy_(y),
    "zero_": lambda x, y: x.zero_(),
    "fill_": lambda x, y: x.fill_(7),
    "addcmul_": lambda x, y: x.addcmul_(y, y, value=0.5),
    "addcdiv_": lambda x, y: x.addcdiv_(y, y.abs() + 1, value=-2),
    "lerp_": lambda x, y: x.lerp_(y, 0.3),
    "tril_": lambda x, y: x.tril_(),
    "eq_": lambda x, y: x.eq_(y),
    "scatter_": lambda x, y: x.scatter_(1, (y > 0).long(), 9.0),
    "index_add_": lambda x, y: x.index_add_(0, torch.tensor([0, 0], device=x.device), y[:2]),
    "iadd_broadcast": lambda x, y: x.__iadd__(y[0]),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name):
    check(IN_PLACE[name], values(3, 4), values(3, 4, seed=1))
    check(lambda x, y: IN_PLACE[name](x.t(), y.t()) if name not in ("iadd_broadcast", "index_add_") else x, values(3, 3),
          values(3, 3, seed=1))  # fmt: skip


def test_in_place_returns_the_same_tensor():
    x = torch.ones(2, device="tpu")
    assert x.add_(1) is x and x.data_ptr() == x.add_(1).data_ptr()


def test_operand_is_also_the_target(every_mode):
    check(lambda x: x.add_(x), values(3))
    check(lambda x: x.sub_(x.t().contiguous()), values(3, 3))


OUT = {
    "add": lambda a, b, o: torch.add(a, b, out=o),
    "mul": lambda a, b, o: torch.mul(a, b, out=o),
    "mm": lambda a, b, o: torch.mm(a, b.t(), out=o),
    "exp": lambda a, b, o: torch.exp(a, out=o),
    "sum": lambda a, b, o: torch.sum(a, 1, out=o),
    "cat": lambda a, b, o: torch.cat([a, b], out=o),
    "where": lambda a, b, o: torch.where(a > 0, a, b, out=o),
    "clamp": lambda a, b, o: torch.clamp(a, 0, 1, out=o),
    "gather": lambda a, b, o: torch.gather(a, 1, (b > 0).long(), out=o),
    "cumsum": lambda a, b, o: torch.cumsum(a, 1, out=o),
    "maximum": lambda a, b, o: torch.maximum(a, b, out=o),
}


@pytest.mark.parametrize("name", OUT)
def test_out_is_resized(name):
    check(lambda a, b: OUT[name](a, b, torch.empty(0, device=a.device)), values(3, 4), values(3, 4, seed=1), loose=2)


@pytest.mark.parametrize("name", OUT)
def test_out_into_a_strided_view(name):
    def run(a, b):
        shape = OUT[name](a, b, torch.empty(0, device=a.device)).shape
        big = torch.zeros([2 * s for s in shape], device=a.device)
        view = big[tuple(slice(0, s) for s in shape)]
        OUT[name](a, b, view)
        return big

    check(run, values(3, 4), values(3, 4, seed=1), loose=2)


def test_out_casts_as_on_the_cpu():
    check(
        lambda a, b: torch.add(a, b, out=torch.zeros(3, 4, dtype=torch.float64, device=a.device)),
        values(3, 4),
        values(3, 4),
    )
    x = torch.ones(3, device="tpu")
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.add(x, x, out=torch.zeros(3, dtype=torch.int64, device="tpu"))


def test_two_outputs():
    def run(a):
        v, i = torch.empty(0, device=a.device), torch.empty(0, dtype=torch.int64, device=a.device)
        torch.max(a, 1, out=(v, i))
        return v, i

    check(run, values(3, 5))


ERRORS = {
    "result does not fit": (lambda x: x.add_(torch.ones(2, 3, 4, device=x.device)), RuntimeError),
    "int from float": (lambda x: x.long().add_(1.5), RuntimeError),
    "bool from float": (lambda x: (x > 0).mul_(x), RuntimeError),
    "into an expanded tensor": (lambda x: x[:1].expand(3, 4).add_(1), RuntimeError),
    "source overlaps target": (
        lambda x: x.flatten()[1:].add_(x.flatten()[:-1]) if x.is_meta else x[1:].add_(x[:-1]),
        RuntimeError,
    ),
    "out on another device": (
        lambda x: torch.add(x, x, out=torch.empty(3, 4, device="meta" if x.is_cpu else "cpu")),
        RuntimeError,
    ),
    "leaf that needs a gradient": (lambda x: x.requires_grad_().add_(1), RuntimeError),
    "out needs a gradient": (
        lambda x: torch.exp(x, out=torch.empty(3, 4, device=x.device, requires_grad=True)),
        RuntimeError,
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_come_at_the_call(name, every_mode):
    function, kind = ERRORS[name]
    with pytest.raises(kind):
        function(values(3, 4))
    x = values(3, 4).to("tpu")
    with pytest.raises(kind):
        function(x)
    assert torch.isfinite(x.detach().sum()).item()  # the device works on
