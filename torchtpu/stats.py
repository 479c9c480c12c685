"""What the device did and why: counters, reasons for each compile, host fallbacks."""

from __future__ import annotations

import ctypes
import json

from . import _decompositions, _load

POLICIES = ("warn", "error", "silent")


def stats() -> dict:
    """Counters of this process: operators recorded, programs compiled and why, cache hits by tier, bytes moved.

    ``fallbacks`` maps the name of each operator that ran on the host to its number of calls, ``compiles`` lists the
    latest compiles, newest first, each with its key, milliseconds and reason. All counters are there, as zeros, before
    the device is started.

        >>> import torchtpu
        >>> torchtpu.stats()["programs_compiled"]
        0
    """
    from ._core import check, lib

    text = ctypes.c_void_p()
    check(lib.ttpu_stats_json(ctypes.byref(text)))
    try:
        result = json.loads(ctypes.string_at(text.value or 0))
    finally:
        lib.ttpu_free_string(text)
    result["fallbacks"] = fallbacks()
    return result


def fallbacks() -> dict[str, int]:
    """Operators that ran on the host, with the number of calls."""
    counts = json.loads(_load.shim().ttpu_shim_fallbacks_json())
    for name, count in _decompositions.host_calls().items():
        counts[name] = counts.get(name, 0) + count
    return counts


def explain(last: int = 10) -> str:
    """Why the latest programs were compiled, and what ran on the host: a text for people.

    >>> import torchtpu
    >>> print(torchtpu.explain())
    nothing was compiled
    """
    now = stats()
    lines = [f"{c['milliseconds']:8.1f} ms  {c['key'][:12]}  {c['why']}" for c in now["compiles"][:last]]
    if lines:
        lines.insert(0, f"{now['programs_compiled']} programs compiled, the latest first:")
    else:
        lines = ["nothing was compiled"]
    if now["fallbacks"]:
        lines.append("on the host, by calls:")
        lines += [f"{n:8d}  {name}" for name, n in sorted(now["fallbacks"].items(), key=lambda e: -e[1])]
    return "\n".join(lines)


def set_fallback(policy: str) -> None:
    """What to do with an operator that has neither a lowering nor a decomposition.

    "warn" (the default) runs it on the CPU and says so once an operator, "silent" does not say so, "error" raises
    NotImplementedError. Raises ValueError for another policy.
    """
    if policy not in POLICIES:
        raise ValueError(f"unknown fallback policy {policy!r}; choose one of {', '.join(POLICIES)}")
    _load.shim().ttpu_shim_set_fallback(POLICIES.index(policy))


def get_fallback() -> str:
    """The current policy: "warn", "error" or "silent"."""
    return POLICIES[_load.shim().ttpu_shim_get_fallback()]
