"""The C core through ctypes: prototypes of what Python calls in include/ttpu.h, and statuses as exceptions."""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import POINTER, c_bool, c_char_p, c_int, c_int64, c_void_p
from pathlib import Path

from .errors import make

LIBRARY = "libtorchtpu.so"
PACKAGE = Path(__file__).resolve().parent

_PROTOTYPES: dict[str, tuple[object, list[object]]] = {
    # name: (result, arguments); c_void_p as a result is a ttpu_status_t *
    "ttpu_init": (c_void_p, [c_char_p, c_int]),
    "ttpu_is_initialized": (c_bool, []),
    "ttpu_shutdown": (None, []),
    "ttpu_device_count": (c_int, []),
    "ttpu_platform": (c_char_p, []),
    "ttpu_platform_version": (c_char_p, []),
    "ttpu_plugin_path": (c_char_p, []),
    "ttpu_device_kind": (c_char_p, [c_int]),
    "ttpu_set_mode": (c_void_p, [c_int]),
    "ttpu_get_mode": (c_int, []),
    "ttpu_set_matmul_precision": (None, [c_int]),
    "ttpu_get_matmul_precision": (c_int, []),
    "ttpu_flush": (c_void_p, [c_int]),
    "ttpu_synchronize": (c_void_p, [c_int]),
    "ttpu_stats_json": (c_void_p, [POINTER(c_void_p)]),
    "ttpu_free_string": (None, [c_void_p]),
    "ttpu_memory_stats": (c_void_p, [c_int, POINTER(c_int64)]),
    "ttpu_memory_reset_peak": (None, [c_int]),
    "ttpu_status_number": (c_int, [c_void_p]),
    "ttpu_status_text": (c_char_p, [c_void_p]),
    "ttpu_status_drop": (None, [c_void_p]),
}


def library_folder() -> Path:
    """The folder of the built libraries.

    TORCHTPU_LIBRARY_DIR (a build tree), else this package, else the installed copy of this package: so that Python
    started in a source tree, which shadows the installation, still finds them.
    """
    given = os.environ.get("TORCHTPU_LIBRARY_DIR")
    folders = [Path(given)] if given else [PACKAGE, *(Path(p or ".") / PACKAGE.name for p in sys.path)]
    for folder in folders:
        if (folder / LIBRARY).is_file():
            return folder.resolve()
    raise ImportError(
        f"{LIBRARY} is not in {folders[0]}: build and install the package with `pip install .`, "
        "or point TORCHTPU_LIBRARY_DIR at a build tree"
    )


FOLDER = library_folder()
lib = ctypes.CDLL(str(FOLDER / LIBRARY))
for _name, (_result, _arguments) in _PROTOTYPES.items():
    _function = getattr(lib, _name)
    _function.restype, _function.argtypes = _result, _arguments


def check(status: int | None) -> None:
    """Raises the exception for a status of the core, and frees it; does nothing for OK."""
    if not status:
        return
    code = lib.ttpu_status_number(status)
    message = lib.ttpu_status_text(status).decode(errors="replace")
    lib.ttpu_status_drop(status)
    raise make(code, message)
