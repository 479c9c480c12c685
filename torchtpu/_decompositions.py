"""Operators without a lowering, by PyTorch's own decompositions into operators that have one.

The shim asks on first sight of such an operator (`_offer`). If PyTorch has a decomposition it is registered as the
operator's kernel on our device; its in-place and out= forms are the functional one followed by a copy. A decomposition
that ends in the very operator it decomposes cannot be known beforehand: it is noticed when it happens, and from then on
the operator runs on the host.
"""

from __future__ import annotations

import ctypes
import threading
import warnings
from collections import Counter
from collections.abc import Callable

import torch
from torch._C import DispatchKey, DispatchKeySet

_HOOK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)

_active = threading.local()
_host_calls: Counter[str] = Counter()
_library: torch.library.Library | None = None
_shim: ctypes.CDLL
_keep: list = []  # what C holds a pointer to

# PyTorch decomposes these with data-dependent control flow or device-dependent choices that do not suit us.
_NEVER = {"aten::_fused_dropout", "aten::native_dropout"}

_QUIET = DispatchKeySet(DispatchKey.AutocastPrivateUse1)


def install(shim: ctypes.CDLL) -> None:
    """Makes the shim ask us about operators that have no lowering."""
    global _shim
    _shim = shim
    hook = _HOOK(_offer)
    _keep.append(hook)
    shim.ttpu_shim_set_fallback_hook(hook)


def host_calls() -> Counter[str]:
    """Calls that a failed decomposition sent to the host, by operator."""
    return _host_calls


class _Recursion(Exception):
    """A decomposition called the operator it decomposes."""


def _offer(text: bytes) -> int:
    """1 when a decomposition of the operator |text| ("aten::hypot_") is registered now, else 0. Never raises."""
    try:
        return int(_register(text.decode()))
    except Exception as error:  # C is waiting: an operator without a decomposition runs on the host
        warnings.warn(f"no decomposition for {text.decode()}: {error}", stacklevel=2)
        return 0


def _register(name: str) -> bool:
    global _library
    if not name.startswith("aten::") or name in _NEVER:
        return False
    packet_name, _, overload = name.removeprefix("aten::").partition(".")
    op = getattr(getattr(torch.ops.aten, packet_name), overload or "default")
    kernel = _kernel_for(op)
    if kernel is None:
        return False
    if _library is None:
        _library = torch.library.Library("aten", "IMPL", "PrivateUse1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that an earlier kernel is replaced is what we want
        _library.impl(name.removeprefix("aten::"), _guarded(name, op, kernel), allow_override=True)
    return True


def _kernel_for(op: torch._ops.OpOverload) -> Callable | None:
    """The decomposition of |op|, made from the one of its functional sibling where it has none of its own."""
    from torch._decomp import core_aten_decompositions, decomposition_table

    for table in (core_aten_decompositions(), decomposition_table):
        if op in table and not op._schema.is_mutable:
            return table[op]
    if not op._schema.is_mutable:
        return None
    functional = _functional_sibling(op)
    if functional is None:
        return None
    # Not the sibling itself unless it has a lowering: PyTorch may compose it of the very operator we were asked for.
    lowered = torch._C._dispatch_has_kernel_for_dispatch_key(functional.name(), "PrivateUse1")
    compute = functional if lowered else _kernel_for(functional)
    return _write_back(op, compute) if compute else None


def _functional_sibling(op: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """The overload with the same arguments that writes nothing: add_.Tensor -> add.Tensor, sum.IntList_out -> sum.dim_IntList."""
    wanted = [str(a.type) for a in op._schema.arguments if not a.is_out]
    namespace, packet_name = op._schema.name.split("::")
    if packet_name.endswith("_") and not packet_name.endswith("__"):
        packet_name = packet_name[:-1]
    packet = getattr(getattr(torch.ops, namespace), packet_name, None)
    for overload in packet.overloads() if packet else ():
        candidate = getattr(packet, overload)
        if not candidate._schema.is_mutable and [str(a.type) for a in candidate._schema.arguments] == wanted:
            return candidate
    return None


def _write_back(op: torch._ops.OpOverload, compute: Callable) -> Callable:
    """|op|, which writes into its arguments, by |compute|, which returns new tensors."""
    schema = op._schema.arguments
    outs = [a.name for a in schema if a.is_out]
    names = [a.name for a in schema]

    def kernel(*args, **kwargs):
        targets = [kwargs.pop(o) if o in kwargs else args[names.index(o)] for o in outs] if outs else [args[0]]
        args = args[: len(names) - len(outs)] if outs else args
        values = compute(*args, **kwargs)
        values = values if isinstance(values, (tuple, list)) else (values,)
        for target, value in zip(targets, values, strict=True):
            if not torch.can_cast(value.dtype, target.dtype):
                raise RuntimeError(
                    f"result type {_text(value.dtype)} can't be cast to the desired output type {_text(target.dtype)}"
                )
            if outs and target.shape != value.shape:
                target.resize_(value.shape)
            elif target.shape != value.shape:
                raise RuntimeError(
                    f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(value.shape)}"
                )
            target.copy_(value)
        return targets[0] if len(targets) == 1 else tuple(targets)

    return kernel


def _text(dtype: torch.dtype) -> str:
    return {torch.float32: "Float", torch.float64: "Double", torch.int64: "Long", torch.int32: "Int"}.get(
        dtype, str(dtype).removeprefix("torch.").capitalize()
    )


def _guarded(name: str, op: torch._ops.OpOverload, kernel: Callable) -> Callable:
    on_host = False

    def call(*args, **kwargs):
        nonlocal on_host
        if on_host:
            return _on_host(name, op, args, kwargs)
        running = _running()
        if name in running:
            raise _Recursion(name)
        running.add(name)
        try:
            with torch._C._ExcludeDispatchKeyGuard(_QUIET):
                return kernel(*args, **kwargs)
        except _Recursion as recursion:
            if recursion.args[0] != name:
                raise
            on_host = True
        finally:
            running.discard(name)
        return _on_host(name, op, args, kwargs)

    return call


def _running() -> set[str]:
    if not hasattr(_active, "names"):
        _active.names = set()
    return _active.names


def _on_host(name: str, op: torch._ops.OpOverload, args: tuple, kwargs: dict):
    """Runs |op| on CPU PyTorch: operands down, results up, mutated arguments copied back."""
    policy = _shim.ttpu_shim_get_fallback()
    if policy == 1:
        raise NotImplementedError(
            f"{name} has no lowering on the tpu device and the host fallback is off. "
            'torchtpu.set_fallback("warn") runs it on the CPU; docs/operators.md lists what runs natively.'
        )
    if policy == 0 and not _host_calls[name]:
        warnings.warn(
            f"{name} runs on the CPU: the tpu device has no lowering for it. Each call copies its operands to the host "
            'and back. torchtpu.set_fallback("error") makes this an error, "silent" hides it.',
            stacklevel=3,
        )
    _host_calls[name] += 1
    from torch.utils._pytree import tree_map

    device = next((v.device for v in _tensors((args, kwargs)) if v.device.type == "tpu"), torch.device("tpu"))
    down: dict[int, torch.Tensor] = {}

    def to_host(value):
        if isinstance(value, torch.Tensor) and value.device.type == "tpu":
            return down.setdefault(id(value), value.cpu())
        return torch.device("cpu") if isinstance(value, torch.device) else value

    host_args, host_kwargs = tree_map(to_host, args), tree_map(to_host, kwargs)
    result = op(*host_args, **host_kwargs)
    back: dict[int, torch.Tensor] = {}
    for i, argument in enumerate(op._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        given = args[i] if i < len(args) else kwargs.get(argument.name)
        for tensor in _tensors(given):
            host = down[id(tensor)]
            if tensor.shape != host.shape:
                tensor.resize_(host.shape)
            tensor.copy_(host)
            back[id(host)] = tensor
    return tree_map(
        lambda v: back[id(v)] if id(v) in back else v.to(device) if isinstance(v, torch.Tensor) else v, result
    )


def _tensors(tree) -> list[torch.Tensor]:
    from torch.utils._pytree import tree_leaves

    return [v for v in tree_leaves(tree) if isinstance(v, torch.Tensor)]
