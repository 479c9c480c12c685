"""Registers the device with PyTorch (at import: no plugin is loaded) and starts the core (at first use)."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import warnings
from pathlib import Path

import torch

NAME = "tpu"

_lock = threading.RLock()
_registered = False
_forked = False
_shim: ctypes.CDLL | None = None
_at_init: list = []


def register() -> None:
    """Loads core and shim and makes "tpu" a device of PyTorch. Once a process; cheap.

    A shim that cannot be loaded must not keep ``import torch`` from working: it is a warning that says what to do, and
    an ImportError as soon as something of this package needs it.
    """
    global _registered, _shim
    with _lock:
        if _registered:
            return
        _registered = True  # also against the re-entry through torch's own autoload
        try:
            shim_library = _load_shim()
        except ImportError as error:
            warnings.warn(f"the tpu device is not available: {error}", stacklevel=2)
            return
        torch.utils.rename_privateuse1_backend(NAME)
        message = shim_library.ttpu_shim_register()
        if message:
            raise ImportError(f"the shim could not be registered: {message.decode()}")
        _shim = shim_library

        from . import _decompositions, _host_first, _plugins, tpu
        from .stats import POLICIES, set_fallback

        torch._register_device_module(NAME, tpu)
        torch.utils.generate_methods_for_privateuse1_backend(
            for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
        )
        torch.set_autocast_dtype(NAME, torch.bfloat16)
        _decompositions.install(_shim)
        _host_first.install()
        policy = os.environ.get("TORCHTPU_FALLBACK")
        if policy in POLICIES:  # what is not legal is told when the core starts
            set_fallback(policy)
        _shim.ttpu_shim_expect_devices(_plugins.expected_devices())
        atexit.register(_shutdown)
        os.register_at_fork(after_in_child=_after_fork)


def shim() -> ctypes.CDLL:
    """The loaded shim; ImportError with the reason where there is none."""
    if _shim is None:
        raise ImportError("the tpu device is not available, see the warning at import (python -m torchtpu build-shim)")
    return _shim


def initialize() -> None:
    """Finds the plugin, loads it and makes its devices. Does nothing the second time.

    Raises DeviceError when there is no plugin or it does not start, RuntimeError in a forked child of a process that
    already used the device.
    """
    from ._core import check, lib

    if _forked:
        raise RuntimeError(
            "Cannot re-initialize tpu in forked subprocess. To use tpu with multiprocessing, "
            "you must use the 'spawn' start method"
        )
    if lib.ttpu_is_initialized():
        return
    from . import _plugins
    from .errors import DeviceError

    with _lock:
        if lib.ttpu_is_initialized():
            return
        shim()
        plugin = _plugins.find()
        if plugin is None:
            raise DeviceError(
                "no PJRT plugin was found. `pip install fastatomstruct-xla-cpu` runs the tpu device on this "
                "machine's CPU, `pip install libtpu` drives a TPU; TORCHTPU_PLUGIN=<path> names another library"
            )
        if not os.path.exists(plugin.path):
            raise DeviceError(f"the plugin {plugin.path} (from {plugin.source}) does not exist")
        check(lib.ttpu_init(os.fsencode(plugin.path), 0))
        for call in _at_init:
            call()
        _at_init.clear()


def at_initialize(call) -> None:
    """Runs |call| as soon as the device is started: now, if it is."""
    from ._core import lib

    if lib.ttpu_is_initialized():
        call()
    else:
        _at_init.append(call)


def in_bad_fork() -> bool:
    """True in a forked child of a process that had started the device: it cannot be used there."""
    return _forked


def _after_fork() -> None:
    global _forked
    from ._core import lib

    _forked = _forked or lib.ttpu_is_initialized()


def _shutdown() -> None:
    from ._core import lib

    if not _forked:
        lib.ttpu_shutdown()


# --- the shim: built for one minor version of torch ------------------------------------------------------------------


def _load_shim() -> ctypes.CDLL:
    from . import _shim_build
    from ._core import FOLDER, LIBRARY, PACKAGE

    path = FOLDER / _shim_build.NAME
    built_for = _shim_build.built_for(path)
    if built_for and _shim_build.compatible(built_for, torch.__version__):
        return _open_shim(path)
    found = f"was built for torch {built_for}" if built_for else "was not built"
    description = _shim_build.describe()
    if description is None:
        raise ImportError(f"the shim {found}, and no torch installation can be seen from {sys.executable}")
    cached = _shim_build.cached_path(PACKAGE, description)
    if not cached.is_file():
        if _shim_build.compiler() is None:
            raise ImportError(
                f"the shim {found}, this is torch {torch.__version__}, and there is no C++ compiler: install one "
                "(e.g. g++), then run `python -m torchtpu build-shim`"
            )
        print(f"torchtpu: the shim {found}; building it for torch {torch.__version__}, once", file=sys.stderr)
        try:
            cached = _shim_build.build(PACKAGE, FOLDER / LIBRARY, description)
        except (RuntimeError, OSError) as error:
            raise ImportError(
                f"the shim {found}, this is torch {torch.__version__}, and building it failed; "
                f"`python -m torchtpu build-shim` tries again and shows all\n{error}"
            ) from None
    return _open_shim(cached)


def _open_shim(path: Path) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(path))
        for name in (
            "ttpu_shim_register",
            "ttpu_shim_torch_version",
            "ttpu_shim_fallbacks_json",
            "ttpu_shim_overloads",
        ):
            getattr(library, name).restype = ctypes.c_char_p
        for name in ("ttpu_shim_set_fallback", "ttpu_shim_set_fallback_hook", "ttpu_shim_expect_devices"):
            getattr(library, name).restype = None
    except (OSError, AttributeError) as error:
        raise ImportError(f"{error}; `python -m torchtpu build-shim` builds the shim for the installed torch") from None
    return library
