"""Finds the PJRT plugin, without importing any package that holds one.

Run as a script it prints the path of the first installed CPU plugin: the build asks for it to run the C tests.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import sys
from typing import NamedTuple

#: Packages that hold an XLA CPU plugin, best first, and where in them the library lies.
CPU_PACKAGES = (
    ("fastatomstruct_xla_cpu", ("libpjrt_cpu.so",)),
    ("xla_cpu_pjrt", ("*pjrt*cpu*.so", "*.so")),
    ("lammps_jax_pjrt_cpu", ("*pjrt*cpu*.so", "*.so")),
)

_GOOGLE_PCI_VENDOR = "0x1ae0"


class Plugin(NamedTuple):
    """A plugin library and how it was chosen."""

    path: str
    source: str


def has_tpu() -> bool:
    """True when a TPU is really attached.

    libtpu retries for minutes and then aborts the process where there is none, so its client may only be made
    after this said yes. Looks at device nodes and PCI vendors; loads nothing.
    """
    if glob.glob("/dev/accel[0-9]*") or glob.glob("/dev/accel/accel[0-9]*"):
        return True
    for vendor in glob.glob("/sys/bus/pci/devices/*/vendor"):
        try:
            with open(vendor) as f:
                if f.read().strip() != _GOOGLE_PCI_VENDOR:
                    continue
            # Google's virtual disks (class 01) and network cards (class 02) carry the same vendor number.
            with open(os.path.join(os.path.dirname(vendor), "class")) as f:
                if not f.read().startswith(("0x01", "0x02")):
                    return True
        except OSError:
            continue
    return False


def _package_library(package: str, patterns: tuple[str, ...]) -> str | None:
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for pattern in patterns:
            found = sorted(glob.glob(os.path.join(folder, "**", pattern), recursive=True))
            if found:
                return found[0]
    return None


def cpu_plugins() -> list[Plugin]:
    """All installed CPU plugins, best first."""
    found = ((package, _package_library(package, patterns)) for package, patterns in CPU_PACKAGES)
    return [Plugin(path, package) for package, path in found if path]


def find() -> Plugin | None:
    """The plugin this process should use: TORCHTPU_PLUGIN, libtpu if a TPU is attached, an installed CPU plugin."""
    path = os.environ.get("TORCHTPU_PLUGIN")
    if path:
        return Plugin(path, "TORCHTPU_PLUGIN")
    if has_tpu():
        libtpu = os.environ.get("TPU_LIBRARY_PATH") or _package_library("libtpu", ("libtpu.so",))
        if libtpu:
            return Plugin(libtpu, "libtpu")
    plugins = cpu_plugins()
    return plugins[0] if plugins else None


def expected_devices() -> int:
    """How many devices the plugin will probably have, without loading it; for a TPU the most that a machine has."""
    if not os.environ.get("TORCHTPU_PLUGIN") and has_tpu():
        return 8
    text = os.environ.get("TORCHTPU_CPU_DEVICES") or "1"
    return int(text) if text.isdigit() else 1  # what is not legal is told when the core starts


if __name__ == "__main__":
    available = cpu_plugins()
    if not available:
        sys.exit(1)
    print(available[0].path)
