"""Every primitive of src/hlo, compiled by the XLA CPU plugin and compared with CPU PyTorch.

src/hlo/hlo_test.c writes one small module a case (src/hlo/hlo_cases.h); a case's parameters are read from its text, its
inputs are drawn here, and the table below says what each result must be.
"""

import itertools
import math
import re
import subprocess
from pathlib import Path

import pytest
import torch

pypjrt = pytest.importorskip("pypjrt")
plugin = pytest.importorskip("fastatomstruct_xla_cpu")

ROOT = Path(__file__).resolve().parents[2]
ROWS = re.findall(
    r"^DTYPE\((\w+),\s*\d+,\s*'(.)',\s*\"(\S+)\",\s*(\d+),\s*\d+,\s*\"(\w+)\"\)",
    (ROOT / "src/graph/dtype.def").read_text(),
    re.M,
)
DTYPES = {stablehlo: getattr(torch, text) for _, _, stablehlo, _, text in ROWS}
CODES = {getattr(torch, text): int(code) for _, _, _, code, text in ROWS}
NAMES = {getattr(torch, text): name for name, _, _, _, text in ROWS}
ORDER = [getattr(torch, row[4]) for row in ROWS]
NARROW = (torch.float8_e5m2, torch.float8_e4m3fn)


def shapes_of(text):
    """[(dtype, dims)] of all the tensor types in a piece of text."""
    found = re.findall(r"tensor<((?:\d+x)*)(\w+|complex<\w+>)>", text)
    return [(DTYPES[dtype], [int(d) for d in dims.split("x")[:-1]]) for dims, dtype in found]


class Module:
    def __init__(self, client, path):
        self.client, self.text = client, path.read_text()
        inputs, outputs = re.search(r"@main\((.*?)\)(?: -> \((.*)\))? \{$", self.text, re.M).groups()
        self.parameters, self.results = shapes_of(inputs), shapes_of(outputs or "")
        self.executable = client.compile(self.text)

    def __call__(self, *arguments):
        with self.client.devices() as devices:
            buffers = []
            for tensor, (dtype, dims) in zip(arguments, self.parameters, strict=True):
                assert tensor.dtype == dtype and list(tensor.shape) == dims
                buffers.append(self.client.buffer_from_host(raw(tensor), CODES[dtype], dims, devices[0]))
            outputs = self.executable(*buffers)
            return [from_raw(out, dtype, dims) for out, (dtype, dims) in zip(outputs, self.results, strict=True)]


def raw(tensor):
    data = bytearray(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return data or bytearray(1)


def from_raw(buffer, dtype, dims):
    assert list(buffer.dimensions) == dims and buffer.element_type == CODES[dtype]
    if not math.prod(dims):
        return torch.zeros(dims, dtype=dtype)
    return (
        torch.frombuffer(buffer.to_host(), dtype=torch.uint8)[: math.prod(dims) * dtype.itemsize]
        .view(dtype)
        .reshape(dims)
    )


@pytest.fixture(scope="session")
def dumped(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hlo")
    sources = [
        *sorted((ROOT / "src/hlo").glob("*.c")),
        ROOT / "src/graph/dtype.c",
        *[ROOT / f"src/base/{name}.c" for name in ("alloc", "arena", "status", "str")],
    ]
    subprocess.run(
        [
            "cc",
            "-std=gnu11",
            "-O1",
            f"-I{ROOT}/src",
            f"-I{ROOT}/tests/c",
            "-o",
            folder / "hlo_test",
            *sources,
            "-lm",
            "-lpthread",
        ],
        check=True,
        timeout=200,
    )
    subprocess.run([folder / "hlo_test", "--dump", folder], check=True, timeout=60)
    return folder


@pytest.fixture(scope="session")
def client():
    with pypjrt.Client.create(plugin.library_path()) as client:
        yield client


# --- inputs ---------------------------------------------------------------------------------------------------------


def draw(dtype, dims, low=-3.0, high=3.0):
    x = torch.rand(dims, dtype=torch.float64) * (high - low) + low
    if dtype.is_complex:
        return torch.complex(x, torch.rand(dims, dtype=torch.float64) * (high - low) + low).to(dtype)
    if dtype == torch.bool:
        return x > (low + high) / 2
    if not dtype.is_floating_point:
        return x.mul(5).round().to(torch.int64).to(dtype)
    return x.to(torch.float32).to(dtype)


def drawn(module, **how):
    return [draw(dtype, dims, **how) for dtype, dims in module.parameters]


def unit(module):
    """First parameter in (0.1, 0.9), second anywhere, third above 1.1."""
    ranges = [(0.1, 0.9), (-3, 3), (1.1, 4)]
    return [draw(dtype, dims, *span) for (dtype, dims), span in zip(module.parameters, ranges)]


def nonzero(module):
    return [torch.where(x == 0, torch.ones_like(x), x) for x in drawn(module)]


def base_exponent(module):
    """A positive first operand, so that powers are real and remainders keep their sign rule visible in the second."""
    (dtype, dims), (_, other) = module.parameters
    a, b = draw(dtype, dims, 0.2, 3), draw(dtype, other)
    b = torch.where(b.abs() < 0.25, torch.ones_like(b), b)
    a[0, 0, 1] = b[1] = math.nan  # NaN on either side
    return [a, b]


def every_value(dtype):
    if dtype == torch.bool:
        return torch.tensor([0, 1, 1, 0, 0, 1, 0, 1, 1], dtype=dtype)
    if not dtype.is_floating_point and not dtype.is_complex:
        info = torch.iinfo(dtype)
        return torch.tensor([0, 1, 2, 5, 100, 127, 3, info.max // 3, info.min // 3], dtype=dtype)
    values = torch.tensor([0.0, 1.0, -1.0, 2.5, 0.1, 500.75, -0.5, -7.9, -1000.25], dtype=torch.float64)
    return torch.complex(values, values.flip(0)).to(dtype) if dtype.is_complex else values.to(torch.float32).to(dtype)


# --- expectations ---------------------------------------------------------------------------------------------------


def up(f):
    """Computes in float32, rounds once: what XLA does for the half types."""
    return lambda *xs: f(*[x.float() if x.dtype.itemsize == 2 and x.dtype.is_floating_point else x for x in xs])


def unary_float(x, y):
    return [
        f(x)
        for f in (
            torch.exp,
            torch.expm1,
            torch.log,
            torch.log1p,
            torch.sqrt,
            torch.rsqrt,
            lambda v: v ** (1 / 3),
            torch.sin,
            torch.cos,
            torch.tan,
            torch.tanh,
            torch.sigmoid,
        )
    ] + [y.abs(), -y, y.floor(), y.ceil(), y.round(), y.sign(), y.log().isfinite(), y.log().isnan(), y * 0]


def unary_c64(x):
    one = torch.ones_like(x)
    return [
        x.exp(),
        x.exp() - 1,
        x.log(),
        (x + 1).log(),
        x.sqrt(),
        one / x.sqrt(),
        x.sin(),
        x.cos(),
        x.tan(),
        x.tanh(),
        x.sigmoid(),
        -x,
        x.sgn(),
        x.abs(),
        x.real,
        x.imag,
        x.isfinite(),
        x.isnan(),
    ]


def popcount(x):
    return torch.tensor([bin(v).count("1") for v in x.tolist()], dtype=x.dtype)


def leading_zeros(x):
    return torch.tensor([8 - v.bit_length() for v in x.tolist()], dtype=x.dtype)


def unary_int(x, u, b):
    return [-x, x.abs(), ~x, x.sign(), popcount(u), leading_zeros(u), u, ~b, x == x, u != u]


def float_ops(count):
    ops = [torch.add, torch.sub, torch.mul, torch.div, torch.fmod, torch.maximum, torch.minimum, torch.pow, torch.atan2]
    return lambda a, b: [f(a, b) for f in ops[:count]]


def int_ops(a, b):
    ops = [
        torch.add,
        torch.sub,
        torch.mul,
        torch.maximum,
        torch.minimum,
        torch.bitwise_and,
        torch.bitwise_or,
        torch.bitwise_xor,
        lambda x, y: torch.div(x, y, rounding_mode="trunc"),
        torch.fmod,
    ]
    return [f(a, b) for f in ops]


def bool_ops(a, b):
    return [a | b, a & b, a | b, a & b, a & b, a | b, a ^ b]


def nan_extrema(x):
    out, half = [], x.bfloat16()
    for f, fold, start in ((torch.maximum, torch.amax, 0.0), (torch.minimum, torch.amin, 0.0)):
        bound = torch.tensor(0.5)
        window = fold(torch.cat([x.unfold(1, 3, 1), torch.full((8, 98, 1), start)], -1), -1)
        out += [
            f(x, bound),
            f(x, bound),
            torch.full_like(x, math.nan),
            f(x, x.flip(1)),
            fold(x, 0),
            fold(half, 0),
            fold(x, 1),
            fold(half, 1),
            window,
        ]
    return out


def nan_inputs(module):
    x = draw(torch.float32, (8, 100))
    x[3, 3] = x[0, 99] = x[7, 50] = math.nan
    x[5, 10] = -math.nan
    return [x]


def comparisons(a, b):
    return [a == b, a != b, a < b, a <= b, a > b, a >= b]


def total_order():
    rank = torch.tensor([0, 1, 2, 2, 3, 4, 5, 5])
    return comparisons(rank[:, None], rank[None, :])


def bessel_i1e(x):
    return torch.special.i1e(x)


def chlo_float(x, y, z):
    wide = [v.double() for v in (x, y, z)]
    a, b, c = wide
    unit_ops = [a.asin(), a.acos(), a.atanh(), a.erfinv(), a.digamma()]
    ops = [
        b.erf(),
        b.erfc(),
        b.lgamma(),
        b.atan(),
        b.sinh(),
        b.cosh(),
        b.asinh(),
        bessel_i1e(b),
        b.isinf(),
        b.isposinf(),
        b.isneginf(),
        b.square(),
    ]
    return (
        unit_ops
        + ops
        + [c.acosh(), torch.nextafter(y, x), torch.special.zeta(c, a), torch.special.zeta(torch.full_like(c, 2), c)]
    )


def chlo_c64(x):
    wide = x.to(torch.complex128)
    return [
        f(wide)
        for f in (
            torch.asin,
            torch.acos,
            torch.atan,
            torch.sinh,
            torch.cosh,
            torch.asinh,
            torch.acosh,
            torch.atanh,
            torch.square,
        )
    ]


def convert(x):
    drops = lambda dtype: x.is_complex() and not dtype.is_complex and dtype != torch.bool
    return [x.real.to(dtype) if drops(dtype) else x.to(dtype) for dtype in ORDER]


FLOATS = [d for d in ORDER if d.is_floating_point]
DOUBLES = [0.0, -0.0, 1.0, -2.5, 0.1, 65519.0, 65520.0, 448.0, 470.0, 1e-8, 3e38, 1e300, math.inf, -math.inf, math.nan]


def constants_double():
    return [torch.tensor(v, dtype=torch.float64).to(dtype) for dtype in FLOATS for v in DOUBLES]


def constants_int():
    values = [0, 1, -1, 200, 2**63 - 1]
    return [torch.tensor(v, dtype=torch.int64).to(dtype) for dtype in ORDER for v in values]


def constants_other():
    return [
        torch.tensor(complex(0.1, math.inf), dtype=torch.complex64),
        torch.tensor(complex(-0.0, math.nan), dtype=torch.complex128),
        torch.full((2, 3), 0.1),
        torch.zeros((0, 3), dtype=torch.bool),
        torch.tensor(2**63, dtype=torch.uint64),
        torch.tensor(255, dtype=torch.uint8),
        torch.tensor(2**63 - 1),
    ]


def constants_list():
    ints = torch.tensor([i * i - 50 for i in range(100)])
    doubles = torch.tensor([i * 0.37 - 5 for i in range(100)], dtype=torch.float64)
    integers = ORDER[ORDER.index(torch.uint8) : ORDER.index(torch.float8_e5m2)]
    return (
        [ints[:5].to(d) for d in ORDER]
        + [ints.to(d) for d in integers]
        + [doubles.to(d) for d in ORDER if d.is_floating_point or d.is_complex]
        + [torch.zeros(0, dtype=torch.int32), torch.full((3,), 7.0)]
    )


def extremes():
    out = []
    for d in ORDER:
        if d == torch.bool:
            out += [torch.tensor(False), torch.tensor(True)]
        elif d.is_floating_point:
            top = 448.0 if d == torch.float8_e4m3fn else math.inf
            out += [torch.tensor(-top).to(d), torch.tensor(top).to(d)]
        elif not d.is_complex:
            info = torch.iinfo(d)
            out += [torch.tensor(info.min, dtype=d), torch.tensor(info.max, dtype=d)]
    return out


def iota():
    row = torch.arange(3).expand(2, 3)
    return [row.to(d) for d in ORDER] + [torch.tensor([[0, 0, 0], [1, 1, 1]], dtype=torch.int32)]


def bitcast(f, i, c, u, b):
    flat = f.view(torch.float64).reshape(3)
    return [
        f.view(torch.int32),
        flat,
        torch.view_as_complex(f),
        i.view(torch.uint8).reshape(3, 8),
        i.view(torch.complex64),
        c.view(torch.int64),
        c.view(torch.uint8).reshape(3, 8),
        torch.view_as_real(c),
        u.view(torch.float64).reshape(3),
        u.view(torch.complex64).reshape(3),
        b.view(torch.uint8),
        b.view(torch.int32).reshape(3),
    ]


def shapes(x, row):
    pad = torch.nn.functional.pad
    return [
        x.reshape(4, 6),
        x.flatten(),
        row,
        x[..., None],
        x.permute(2, 0, 1),
        x.transpose(-1, 0),
        row.expand(2, 4, 3),
        row[:, None].expand(3, 2),
        row[None, :, None].expand(2, 3, 4),
        x[:, 1:3, ::2],
        x[..., 1:4:2],
        torch.cat([x, x], 1),
        torch.tensor([9, row[0], 9, 9, row[1], 9, 9]),
        pad(x, (0, 0, 0, 2), value=-1.0),
        x.flip(0, 2),
        torch.full_like(x, 2),
    ]


def dynamic_slices(x, i, j):
    part = x[i : i + 2, j : j + 2]
    updated = x.clone()
    updated[i : i + 2, 0:2] = -part
    return [part, updated]


def empty(x, s, at):
    return [
        x + s,
        torch.zeros(2),
        torch.tensor(-math.inf),
        torch.full((2, 1), 3.0),
        x.T,
        torch.full((2, 2), 5.0),
        torch.zeros(2, 0),
        torch.zeros(2, 2),
        torch.zeros(0, dtype=torch.bool),
    ]


def dots(a, b):
    half, integer = a.bfloat16().float(), a.to(torch.int8).int()
    return [
        a @ b,
        torch.einsum("bik,bkj->ij", a.transpose(1, 2).transpose(1, 2), b),
        torch.einsum("ijk,lmn->ijklmn", a, b),
        torch.einsum("bik,bjk->bij", half, half),
        torch.einsum("bik,bjk->bij", integer, integer),
    ]


def convolutions(x, w, line, kernel):
    return [
        torch.nn.functional.conv2d(x, w, stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2),
        torch.nn.functional.conv1d(line, kernel),
        torch.nn.functional.conv1d(line, kernel.flip(-1)).transpose(0, 1),
    ]


def all_reduced(f, x, dims):
    for d in sorted(dims, reverse=True):
        x = f(x, d)
    return x


def reduce(x):
    i, b, nan = x.to(torch.int32), x > 0, x.log()
    fs = [lambda v, d: v.sum(d).to(v.dtype), lambda v, d: v.prod(d).to(v.dtype), torch.amax, torch.amin]
    fold = {torch.bitwise_and: i[0] & i[1], torch.bitwise_or: i[0] | i[1], torch.bitwise_xor: i[0] ^ i[1]}
    out = []
    for f, flags in zip(fs, (b.any(), b.all(), b.any(), b.all())):
        out += [all_reduced(f, x, (0, 2)), f(i, 1), flags, f(nan, -1)]
    return out + list(fold.values()) + [x.to(torch.complex64).sum(0)]


def windows(x):
    pad = torch.nn.functional.pad
    pooled = pad(x, (1, 1), value=-math.inf).unfold(1, 3, 2).amax(-1)
    dilated = torch.zeros(2, 13)
    dilated[:, ::2] = x
    values, where = x.unfold(1, 3, 1).max(-1)
    return [pooled, dilated[:, :-3] + dilated[:, 3:], values, where + torch.arange(5)]


def sorts(x):
    keys = x.log()
    values, where = keys.sort(dim=-1, stable=True)
    top = x.topk(2)
    return [values, where, keys.sort(dim=0, descending=True).values, top.values, top.indices.int()]


def loops(x, bound):
    halved, count = x, 0
    while (halved * halved).sum() > bound:
        halved, count = halved * 0.5, count + 1
    looped = x
    for _, i in itertools.product(range(2), range(3)):
        looped = looped * bound + i
    return [halved, torch.tensor(count, dtype=torch.int32), looped, x]


def branches(x, yes):
    both = {True: [-x, torch.tensor(1.0)], False: [x, x.sum()]}
    return both[bool(yes)] + both[not yes]


def gathers(x, at, rows, pairs):
    return [torch.gather(x, 2, at), x.index_select(1, rows), x[pairs[:, 0], pairs[:, 1]]]


def scatters(x, rows, y):
    out = []
    for f in (lambda old, new: new, torch.add, torch.mul, torch.maximum, torch.minimum):
        z = x.clone()
        z[rows] = f(z[rows], y)
        out.append(z)
    one = x.clone()
    one[torch.arange(4), torch.tensor([0, 1, 2, 2])] += 10
    return out + [one]


def ffts(x, z):
    return [torch.fft.rfft(x), x, torch.fft.fft2(z), torch.fft.ifft(z)]


def linalg(x, b):
    lower = torch.linalg.cholesky(x @ x.mT + torch.eye(3, dtype=x.dtype))
    return [lower @ b, b, torch.linalg.solve(lower.mT, b), lower]


def raw_ops(x):
    return [x, x.to(torch.float8_e5m2).float()]


def index_inputs(module):
    (xd, xs), (_, ats), (_, rows), (_, pairs) = module.parameters
    draw_int = lambda top, dims, dtype=torch.int64: torch.randint(0, top, dims, dtype=dtype)
    return [
        draw(xd, xs),
        draw_int(5, ats),
        draw_int(4, rows),
        torch.stack([draw_int(3, pairs[:1]), draw_int(4, pairs[:1])], 1).int(),
    ]


CASES = {  # name: (expectation, inputs)
    "unary_f16": (up(unary_float), unit),
    "unary_bf16": (up(unary_float), unit),
    "unary_f32": (unary_float, unit),
    "unary_f64": (unary_float, unit),
    "unary_c64": (unary_c64, drawn),
    "unary_int": (unary_int, drawn),
    "binary_f16": (up(float_ops(7)), base_exponent),
    "binary_bf16": (up(float_ops(7)), base_exponent),
    "binary_f32": (float_ops(9), base_exponent),
    "binary_f64": (float_ops(9), base_exponent),
    "binary_i64": (int_ops, nonzero),
    "binary_i8": (int_ops, nonzero),
    "binary_u8": (int_ops, nonzero),
    "binary_bool": (bool_ops, drawn),
    "binary_c64": (lambda a, b: [a + b, a - b, a * b, a / b, a**b], drawn),
    "nan_extrema": (nan_extrema, nan_inputs),
    "shifts": (lambda x, u: [x << 3, x >> 2, u >> 2], drawn),
    "compare_f32": (comparisons, drawn),
    "compare_bf16": (comparisons, drawn),
    "compare_i64": (comparisons, drawn),
    "compare_u8": (comparisons, drawn),
    "compare_bool": (comparisons, drawn),
    "compare_c64": (lambda a, b: [a == b, a != b], drawn),
    "compare_total": (total_order, drawn),
    "selects": (lambda p, s, a, b: [torch.where(p, a, b), torch.where(s, a, b), torch.where(p, 1.0, 2.0)], drawn),
    "chlo_f16": (chlo_float, unit),
    "chlo_bf16": (chlo_float, unit),
    "chlo_f32": (chlo_float, unit),
    "chlo_f64": (chlo_float, unit),
    "chlo_c64": (chlo_c64, drawn),
    **{f"convert_{row[4]}": (convert, lambda m: [every_value(m.parameters[0][0])]) for row in ROWS},
    "constants_double": (constants_double, drawn),
    "constants_int": (constants_int, drawn),
    "constants_other": (constants_other, drawn),
    "constants_list": (constants_list, drawn),
    "extremes": (extremes, drawn),
    "iota": (iota, drawn),
    "bitcast": (bitcast, drawn),
    "shapes": (shapes, drawn),
    "dynamic_slices": (
        dynamic_slices,
        lambda m: [draw(torch.float32, (4, 5)), torch.tensor(1, dtype=torch.int32), torch.tensor(3)],
    ),
    "empty": (empty, drawn),
    "scalars": (lambda x: [x + 1, x, x.expand(2, 2), x[None], x.int(), x, x], drawn),
    "dots": (dots, drawn),
    "convolutions": (convolutions, drawn),
    "reduce": (reduce, drawn),
    "reduce_many": (lambda x: list(x.max(1)), drawn),
    "windows": (windows, drawn),
    "sorts": (sorts, drawn),
    "loops": (loops, lambda m: [draw(torch.float32, (4,)) * 10, torch.tensor(0.7)]),
    "branches": (branches, lambda m: [draw(torch.float32, (4,)), torch.tensor(True)]),
    "gathers": (gathers, index_inputs),
    "scatters": (scatters, lambda m: [draw(torch.float32, (4, 3)), torch.tensor([3, 1]), draw(torch.float32, (2, 3))]),
    "ffts": (ffts, drawn),
    "linalg": (linalg, drawn),
    "raw": (raw_ops, drawn),
    "donated": (lambda x: [x + 1], drawn),
}
SPECIAL = {"random_bits"}  # has a test of its own

# Largest error, relative to the result or to one. "chlo" in half types is computed in float32 and rounded once.
TOLERANCE = {
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
    torch.float32: 5e-6,
    torch.float64: 1e-12,
    torch.complex64: 1e-5,
    torch.complex128: 1e-12,
}


def check(name, number, got, expected):
    assert got.shape == expected.shape, f"{name}[{number}]: {list(got.shape)}, not {list(expected.shape)}"
    if got.dtype in NARROW:
        got, expected = got.float(), expected.float()
    elif got.dtype in (torch.uint16, torch.uint32, torch.uint64):
        signed = {2: torch.int16, 4: torch.int32, 8: torch.int64}[got.dtype.itemsize]
        got, expected = got.view(signed), expected.to(got.dtype).view(signed)
    tolerance = TOLERANCE.get(got.dtype, 0)
    if name.startswith(("convert", "constants", "extremes", "iota", "bitcast", "shapes")):
        tolerance = 0
    if expected.dtype != got.dtype and not got.is_floating_point() and not got.is_complex():
        pytest.fail(f"{name}[{number}]: dtype {got.dtype}, not {expected.dtype}")
    torch.testing.assert_close(
        got,
        expected.to(got.dtype),
        rtol=tolerance,
        atol=tolerance,
        equal_nan=True,
        msg=lambda text: f"{name}[{number}] {got.dtype}: {text}",
    )
    if tolerance == 0 and got.dtype.is_floating_point:
        zero = got == 0
        assert torch.equal(torch.signbit(got)[zero], torch.signbit(expected.to(got.dtype))[zero]), (
            f"{name}[{number}]: sign of zero"
        )


@pytest.mark.parametrize("name", CASES)
def test_case(name, dumped, client):
    torch.manual_seed(len(name))
    expectation, inputs = CASES[name]
    module = Module(client, dumped / f"{name}.mlir")
    arguments = inputs(module)
    results, expected = module(*arguments), expectation(*arguments)
    assert len(results) == len(expected)
    for number, (got, want) in enumerate(zip(results, expected)):
        check(name, number, got, want)


def test_every_case_is_run(dumped):
    assert {path.stem for path in dumped.glob("*.mlir")} == set(CASES) | SPECIAL


def test_random_bits(dumped, client):
    module = Module(client, dumped / "random_bits.mlir")
    state = torch.tensor([7, 0], dtype=torch.uint64)
    narrow, wide = module(state)
    again = module(state)
    assert torch.equal(raw_view(narrow), raw_view(again[0])) and torch.equal(raw_view(wide), raw_view(again[1]))
    other = module(torch.tensor([8, 0], dtype=torch.uint64))[0]
    later = module(torch.tensor([7, 1000], dtype=torch.uint64))[0]
    for different in (other, later):
        assert (raw_view(different) == raw_view(narrow)).float().mean() < 0.02
    for bits in (narrow, wide):  # each bit is set half of the time: 32,000 draws, six standard deviations
        ones = sum(bin(v & (2**64 - 1)).count("1") for v in bits.flatten().tolist())
        assert abs(ones / (bits.numel() * bits.element_size() * 8) - 0.5) < 0.02


def raw_view(x):
    return x.view(torch.int64 if x.dtype == torch.uint64 else torch.int32)
