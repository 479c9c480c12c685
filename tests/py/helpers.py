"""Comparison of the tpu device with the CPU: run the same function on both."""

from __future__ import annotations

import torch
from torch.utils._pytree import tree_leaves, tree_map

TOLERANCE = {
    torch.float64: (1e-7, 1e-7),
    torch.float32: (1.3e-5, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-2),
    torch.float16: (2e-3, 2e-3),
    torch.complex64: (1.3e-5, 1e-5),
    torch.complex128: (1e-7, 1e-7),
}


def to(device, tree):
    """Moves the tensors of |tree|, keeping requires_grad and strides."""

    def move(value):
        if not isinstance(value, torch.Tensor):
            return value
        return value.detach().to(device).requires_grad_(value.requires_grad)

    return tree_map(move, tree)


def host(tree):
    return tree_map(lambda v: v.detach().cpu() if isinstance(v, torch.Tensor) else v, tree)


def tensors(tree):
    return [v for v in tree_leaves(tree) if isinstance(v, torch.Tensor)]


def assert_same(got, expected, loose: float = 1, strides: bool = True):
    """Values within the tolerance of their dtype (times |loose|), dtypes, shapes and strides as on the CPU."""
    got_leaves, expected_leaves = tree_leaves(got), tree_leaves(expected)
    assert len(got_leaves) == len(expected_leaves)
    for g, e in zip(got_leaves, expected_leaves):
        if not isinstance(e, torch.Tensor):
            assert type(g) is type(e) and (g == e or (g != g and e != e)), f"{g!r} instead of {e!r}"
            continue
        assert g.dtype == e.dtype and g.shape == e.shape
        if strides and e.numel() > 1:
            wanted = [s for s, n in zip(e.stride(), e.shape) if n > 1]
            assert [s for s, n in zip(g.stride(), g.shape) if n > 1] == wanted, f"{g.stride()} instead of {e.stride()}"
        rtol, atol = TOLERANCE.get(e.dtype, (0, 0))
        torch.testing.assert_close(
            g.detach().cpu(), e.detach(), rtol=rtol * loose, atol=atol * loose, equal_nan=True, check_stride=False
        )


def check(function, *arguments, loose: float = 1, strides: bool = True):
    """Runs |function| on CPU tensors and on their copies on tpu; compares the results and what happened to the arguments."""
    ours = to("tpu", arguments)
    theirs = tree_map(lambda v: v.detach().clone().requires_grad_(v.requires_grad) if isinstance(v, torch.Tensor) else v,
                      arguments)  # fmt: skip
    expected = function(*theirs)
    got = function(*ours)
    for g in tensors(got):
        assert g.device.type == "tpu", f"result on {g.device}"
    assert_same(got, expected, loose, strides)
    assert_same(ours, theirs, loose, strides=False)
    return got
