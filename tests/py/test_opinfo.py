"""PyTorch's own operator database: the tpu device against the CPU, forward, gradient, in-place and out=.

A sample by default; ``--opinfo=full`` runs every operator, more samples of each, and the error inputs. An operator that
is not lowered yet runs on the host and is still compared; `KNOWN` lists expected failures with their reasons, and one
that passes unexpectedly fails.
"""

import itertools
import re

import pytest
import torch
from helpers import TOLERANCE, host, tensors
from torch.utils._pytree import tree_map

import torchtpu

common = pytest.importorskip("torch.testing._internal.common_methods_invocations", reason="needs expecttest")

#: One operator a family; the full run has all.
SAMPLE = """abs add addmm amax any arange argsort atan2 bmm cat clamp clone cumsum div eq exp expand flip floor_divide
full gather gelu index_add index_fill index_put index_select isnan lerp linalg.inv log_softmax logsumexp masked_fill max
mean mm mul native_layer_norm nn.functional.adaptive_avg_pool2d nn.functional.avg_pool2d nn.functional.batch_norm
nn.functional.conv2d nn.functional.cross_entropy nn.functional.embedding nn.functional.gelu nn.functional.group_norm
nn.functional.interpolate nn.functional.layer_norm nn.functional.linear nn.functional.max_pool2d nn.functional.mse_loss
nn.functional.pad nn.functional.scaled_dot_product_attention nn.functional.softplus norm permute pow remainder repeat
roll rsqrt scatter scatter_add select sigmoid sign sin slice softmax sort split sqrt stack std sub sum take tanh topk
transpose tril unbind unfold var view where zeros_like""".split()  # fmt: skip

RANDOM = """rand rand_like randn randn_like randint randint_like randperm empty empty_like new_empty new_empty_strided
empty_strided empty_permuted normal bernoulli multinomial uniform exponential geometric cauchy log_normal
nn.functional.dropout nn.functional.dropout2d nn.functional.dropout3d nn.functional.alpha_dropout
nn.functional.feature_alpha_dropout nn.functional.rrelu nn.functional.fractional_max_pool2d
nn.functional.fractional_max_pool3d pca_lowrank svd_lowrank nn.functional.multi_head_attention_forward""".split()

#: (operator, what): why it fails today.
KNOWN: dict[tuple[str, str], str] = {
    ("sparse.mm", "forward"): "the tpu device has strided tensors only",
    ("sparse.sampled_addmm", "forward"): "the tpu device has strided tensors only",
}

#: What only the data can tell is not an error at the call (docs/errors.md).
NEEDS_DATA = re.compile("out of bounds|probability|sum of probabilities|invalid multinomial")

#: Equal elements may come in any order: only the values, the first result, are compared.
UNORDERED = ("topk", "kthvalue", "mode", "median", "nanmedian")

LOOSE = 20  # reductions and products in another order: times the default tolerance


def name_of(op):
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def selected(config):
    if config.getoption("--opinfo") == "full":
        return list(common.op_db)
    return [op for op in common.op_db if op.name in SAMPLE]


def pytest_generate_tests(metafunc):
    if "op" not in metafunc.fixturenames:
        return
    if "errors" in metafunc.function.__name__:
        ops = [op for op in selected(metafunc.config) if op.error_inputs_func is not None]
        metafunc.parametrize("op", ops, ids=name_of)
        return
    full = metafunc.config.getoption("--opinfo") == "full"
    dtypes = (
        [torch.float32, torch.int64, torch.bfloat16, torch.bool, torch.complex64]
        if full
        else [torch.float32, torch.int64]
    )
    pairs = [(op, d) for op in selected(metafunc.config) for d in dtypes if d in op.dtypes]
    metafunc.parametrize("op,dtype", pairs, ids=[f"{name_of(o)}-{str(d)[6:]}" for o, d in pairs])


@pytest.fixture(autouse=True)
def quiet_fallback():
    before = torchtpu.get_fallback()
    torchtpu.set_fallback("silent")
    yield
    torchtpu.set_fallback(before)


def move(tree):
    def one(value):
        if isinstance(value, torch.Tensor):
            return value.detach().to("tpu").requires_grad_(value.requires_grad)
        return torch.device("tpu") if isinstance(value, torch.device) else "tpu" if value == "cpu" else value

    return tree_map(one, tree)


def detached(tree):
    return tree_map(lambda v: v.detach() if isinstance(v, torch.Tensor) else v, tree)


def compare(got, expected, dtype, factor=1, first=False):
    ours, theirs = tensors(got), tensors(expected)
    if first:
        ours, theirs = ours[:1], theirs[:1]
    assert len(ours) == len(theirs)
    for g, e in zip(ours, theirs):
        assert g.device.type == "tpu" and g.dtype == e.dtype and g.shape == e.shape
        rtol, atol = (t * LOOSE * factor for t in TOLERANCE.get(e.dtype, (0, 0)))
        torch.testing.assert_close(
            g.detach().cpu(), e.detach(), rtol=rtol, atol=atol, equal_nan=True, check_stride=False
        )


def samples(op, dtype, grad, config):
    count = 8 if config.getoption("--opinfo") == "full" else 3
    for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=grad), count):
        tree = (sample.input, tuple(sample.args), dict(sample.kwargs))
        try:
            expected = op(tree[0], *tree[1], **tree[2])
        except Exception:  # a sample that the CPU itself refuses
            continue
        if any(t.layout != torch.strided for t in tensors((tree, expected))):
            continue
        yield sample, tree, expected


def run(op, dtype, config):
    grad = op.supports_autograd and dtype in (torch.float32, torch.complex64)
    for sample, (given, args, kwargs), expected in samples(op, dtype, grad, config):
        random = op.name in RANDOM or kwargs.get("dropout_p", 0) > 0
        x, a, k = move(given), move(args), move(kwargs)
        got = op(x, *a, **k)
        if random:
            assert [(t.dtype, t.shape) for t in tensors(got)] == [(t.dtype, t.shape) for t in tensors(expected)]
            continue
        compare(got, expected, dtype, first=op.name in UNORDERED)
        if grad:
            gradients(got, expected, (x, a, k), (given, args, kwargs), dtype)
        if op.inplace_variant and isinstance(given, torch.Tensor) and not sample.broadcasts_input:
            target = given.detach().clone()
            try:
                op.inplace_variant(target, *detached(args), **detached(kwargs))
            except Exception:
                target = None
            if target is not None:
                ours = given.detach().to("tpu")
                op.inplace_variant(ours, *detached(a), **detached(k))
                compare(ours, target, dtype)
        if op.supports_out and isinstance(expected, torch.Tensor):
            out = torch.empty_like(expected.detach(), device="tpu")
            op(detached(x), *detached(a), **detached(k), out=out)
            compare(out, expected, dtype)


def gradients(got, expected, ours, theirs, dtype):
    outputs, wanted = ([t for t in tensors(v) if t.requires_grad] for v in (got, expected))
    assert len(outputs) == len(wanted)
    if not wanted:
        return
    inputs, leaves = ([t for t in tensors(v) if t.requires_grad] for v in (ours, theirs))
    try:
        reference = torch.autograd.grad(sum(o.abs().sum() for o in wanted), leaves, allow_unused=True)
    except Exception:  # the CPU has no gradient for this sample
        return
    found = torch.autograd.grad(sum(o.abs().sum() for o in outputs), inputs, allow_unused=True)
    for g, e in zip(found, reference):
        assert (g is None) == (e is None)
        if e is not None:
            compare(g, e, dtype, factor=4)


def test_operator(op, dtype, request):
    reason = KNOWN.get((name_of(op), "forward"))
    if reason:
        with pytest.raises(Exception):  # noqa: B017
            run(op, dtype, request.config)
        pytest.xfail(reason)
    run(op, dtype, request.config)


def test_errors(op):
    """What CPU PyTorch refuses, we refuse with the same type of error."""
    for case in op.error_inputs("cpu"):
        s = case.sample_input
        arguments = (s.input, tuple(s.args), dict(s.kwargs))
        given = tensors(arguments)
        if any(t.layout != torch.strided or not t.is_cpu for t in given):
            continue
        if len({t.untyped_storage().data_ptr() for t in given}) < len(given) or any(0 in t.stride() for t in given):
            continue  # a copy of tensors that overlap does not overlap; test_inplace_out.py has these errors
        try:
            op(arguments[0], *arguments[1], **arguments[2])
        except Exception as error:
            expected, message = type(error), str(error)
        else:
            continue
        if NEEDS_DATA.search(message):
            continue
        kinds = (expected, RuntimeError) if issubclass(expected, (IndexError, NotImplementedError)) else expected
        with pytest.raises(kinds):
            x, a, k = move(arguments)
            host(op(x, *a, **k))
