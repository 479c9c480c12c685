"""Eager modes: when what was recorded is compiled and run.

======  ==============================================================================================
debug   after each operator, and wait for it: errors point at the operator that failed
strict  after each operator, without waiting (the default)
fused   when the host needs data, at synchronize, and at a budget: operators become one program
======  ==============================================================================================

The numbers do not depend on the mode. TORCHTPU_EAGER_MODE sets the mode a process starts with.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from . import _load

MODES = ("debug", "strict", "fused")

_wanted: str | None = None  # set before the device was started


def set_eager_mode(mode: str) -> None:
    """Switches the mode of the whole process; what is recorded so far is started first.

    Raises ValueError for a mode that does not exist.

        >>> import torchtpu
        >>> torchtpu.set_eager_mode("fused")
    """
    global _wanted
    if mode not in MODES:
        raise ValueError(f"unknown eager mode {mode!r}; choose one of {', '.join(MODES)}")
    if _started():
        _apply(mode)
        return
    if _wanted is None:
        _load.at_initialize(lambda: _apply(_wanted or mode))
    _wanted = mode


def get_eager_mode() -> str:
    """The current mode: "debug", "strict" or "fused"."""
    if not _started() and _wanted:
        return _wanted
    _load.initialize()
    return MODES[_lib().ttpu_get_mode()]


@contextlib.contextmanager
def eager_mode(mode: str) -> Iterator[None]:
    """Runs a block in another mode and returns to the one before.

    >>> import torchtpu
    >>> with torchtpu.eager_mode("debug"):
    ...     pass
    """
    before = get_eager_mode()
    set_eager_mode(mode)
    try:
        yield
    finally:
        set_eager_mode(before)


def _lib():
    from ._core import lib

    return lib


def _started() -> bool:
    return _lib().ttpu_is_initialized()


def _apply(mode: str) -> None:
    from ._core import check

    check(_lib().ttpu_set_mode(MODES.index(mode)))
