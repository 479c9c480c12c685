"""Element types: promotion, casts, exact 64-bit arithmetic, Python numbers."""

import itertools

import pytest
import torch
from helpers import check

pytestmark = pytest.mark.usefixtures("no_fallback")

ALL = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
       torch.float32, torch.float64, torch.complex64, torch.complex128]  # fmt: skip
NAMES = [str(d).removeprefix("torch.") for d in ALL]


@pytest.mark.parametrize("left", ALL, ids=NAMES)
def test_promotion_of_pairs(left):
    for right in ALL:
        a, b = torch.tensor([3, 1, 0]).to(left), torch.tensor([2, 1, 1]).to(right)
        check(lambda a, b: a + b, a, b, loose=4)
        check(lambda a, b: a * b, a, b, loose=4)
        check(lambda a, b: a == b, a, b)
        check(lambda a, b: torch.where(a == 1, a, b), a, b)


@pytest.mark.parametrize("dtype", ALL, ids=NAMES)
@pytest.mark.parametrize("number", [True, 2, 0.5, 1 + 2j], ids=["bool", "int", "float", "complex"])
def test_promotion_with_python_numbers(dtype, number):
    if dtype == torch.float16 and isinstance(number, complex):
        pytest.skip("CPU PyTorch has no arithmetic on complex32")
    x = torch.tensor([3, 1, 2]).to(dtype)
    check(lambda x: x * number, x, loose=4)
    check(lambda x: number + x, x, loose=4)
    zero_dim = torch.tensor(2).to(dtype)
    check(lambda z, y: z * y, zero_dim, torch.ones(2, dtype=torch.int32), loose=4)


@pytest.mark.parametrize(
    "source,target", list(itertools.product(ALL, ALL)), ids=lambda d: str(d).removeprefix("torch.")
)
def test_casts(source, target):
    x = torch.tensor([0, 1, 2, 100, 57, 3]).to(source)
    check(lambda x: x.to(target), x)


def test_cast_edges():
    f = torch.tensor([2.9, -2.9, 0.5, 1.00390625, 1.01171875, 70000.0, 1e-8])
    for dtype in (torch.int32, torch.int64, torch.bfloat16, torch.float16, torch.bool, torch.complex64):
        check(lambda x, d=dtype: x.to(d), f)
    check(lambda x: x.half().float(), f)
    check(lambda x: x.bool(), torch.tensor([float("nan"), float("inf"), 0.0]))
    check(lambda x: x.to(torch.uint8), torch.tensor([300, -1]))
    check(lambda x: x.to(torch.int8), torch.tensor([200]))


def test_default_dtype_decides():
    x = torch.tensor([1, 2])
    torch.set_default_dtype(torch.float64)
    try:
        check(lambda x: (x / 2, torch.ones(2, device=x.device), x * 0.5, x.float() * 0.5), x)
    finally:
        torch.set_default_dtype(torch.float32)
    check(lambda x: (x / 2, x * 0.5), x)


def test_64_bits_are_exact():
    check(lambda d: (d.sum(), d * d, d.reciprocal(), d.sqrt(), d.float().double()),
          torch.tensor([1.0, 1e-9, 3.0], dtype=torch.float64))  # fmt: skip
    check(lambda i: (i + 1, i // 3, i.max(), i == i + 1, i >> 31, i * 3), torch.tensor([2**53 + 1, -(2**62), 2**31]))
    assert torch.arange(2**40, 2**40 + 3, device="tpu").tolist() == [2**40, 2**40 + 1, 2**40 + 2]
    x = torch.zeros(1, dtype=torch.int64, device="tpu")
    assert (x + (2**62 + 1)).item() == 2**62 + 1 and x.fill_(2**53 + 1).item() == 2**53 + 1


def test_integer_division_and_remainder():
    a, b = torch.tensor([1, -1, -616, 7, -7]), torch.tensor([2, 2, 28, -2, 2])
    check(lambda a, b: (a // b, a % b, torch.fmod(a, b), a / b, torch.div(a, b, rounding_mode="trunc")), a, b)
    v = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, 1.0, -1.0, 3.5, -3.5])
    check(lambda a, b: (torch.div(a, b, rounding_mode="floor"), a // b, a % b), v.repeat_interleave(8), v.repeat(8))


def test_small_integers_wrap():
    x = torch.tensor([[255, 2, 1], [5, 3, 6]], dtype=torch.uint8)
    check(lambda x: (x.sum(dtype=torch.uint8), x.sum(), x + x, x - 7, x * 3, -x, ~x, x.prod(dtype=torch.uint8)), x)


def test_shifts_and_bits():
    i = torch.arange(10)
    check(lambda i: (1 << i, i << 2, i & 3, i | 8, i ^ 5, ~i, torch.bitwise_left_shift(i, i)), i)
    check(lambda n: n >> 1, torch.tensor([-8, -1], dtype=torch.int32))
    check(lambda u: (u >> 4, u << 1), torch.tensor([255, 16], dtype=torch.uint8))


def test_bool_arithmetic():
    def run(v):
        return (
            v + v,
            v * v,
            v | ~v,
            v ^ True,
            v.any(),
            v.all(),
            v.int() - 1,
            v.float().mean(),
            v.max(),
            v & 1,
            v.cumsum(0),
        )

    check(run, torch.tensor([True, False, True]))
    with pytest.raises(RuntimeError):
        torch.ones(2, dtype=torch.bool, device="tpu") - torch.ones(2, dtype=torch.bool, device="tpu")


def test_zero_dim_cpu_operands():
    s = torch.tensor(0.5)
    x = torch.arange(3.0, device="tpu")
    y = torch.arange(3.0)
    for f in (lambda x: s * x, lambda x: x - s, lambda x: torch.where(x > 0, x, s), lambda x: x.clamp(min=s),
              lambda x: x + torch.tensor(2, dtype=torch.float64)):  # fmt: skip
        got, expected = f(x), f(y)
        assert got.is_tpu and got.dtype == expected.dtype and torch.equal(got.cpu(), expected)


def test_nan_and_infinity():
    t = torch.tensor([float("nan"), 1.0, 200.0, -float("inf"), float("inf")])
    check(lambda t: (t.clamp(0, 1), t.clamp(min=-100), t.relu(), t.max(), t.min(), t.argmax(), t.nan_to_num(), t.isfinite(),
                     torch.maximum(t, -t), torch.fmax(t, -t), t.sign(), t.softmax(0)), t)  # fmt: skip
    check(lambda t: (t.sort(), t.sort(descending=True), t.topk(2), t.cummax(0)), t)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=["e4m3fn", "e5m2"])
def test_float8_casts(dtype):
    x = torch.tensor([0.0, 1.0, -1.1, 0.3, 240.0, 448.0, 0.002])
    check(lambda x: (x.to(dtype).float(), x.to(dtype).view(torch.uint8), x.to(dtype)[::2].float()), x)
