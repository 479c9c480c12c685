"""The command ``torchtpu``, also ``python -m torchtpu``: what is installed, the program cache, the shim."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from ._core import PACKAGE

_ROW = re.compile(r'^ENV\((\w+),\s*(\w+),\s*"(.*?)",\s*"(.*?)",\s*"(.*)"\)', re.MULTILINE)


def settings() -> list[tuple[str, str, str, str]]:
    """The rows of env.def: variable, default, what is legal, meaning."""
    for folder in (PACKAGE / "include", PACKAGE.parent / "src"):
        table = folder / "base" / "env.def"
        if table.is_file():
            rows = _ROW.findall(table.read_text())
            return [(f"TORCHTPU_{name}", default, legal, meaning) for name, _, default, legal, meaning in rows]
    return []


console = Console()


@click.group()
def main() -> None:
    """TorchTPU: the tpu device of PyTorch."""


@main.command()
def info() -> None:
    """Versions, plugin, devices, cache and settings."""
    import torch

    import torchtpu

    from . import _core, _load, _plugins, _shim_build

    versions = _table("versions")
    versions.add_row("torchtpu", torchtpu.__version__)
    versions.add_row("torch", torch.__version__)
    versions.add_row("core", str(_core.FOLDER / _core.LIBRARY))
    versions.add_row("shim built for torch", _shim_built_for(_load, _core, _shim_build))
    console.print(versions)

    plugin = _plugins.find()
    devices = _table("device")
    devices.add_row(
        "plugin", f"{plugin.path} ({plugin.source})" if plugin else "none: pip install fastatomstruct-xla-cpu"
    )
    devices.add_row("TPU attached", "yes" if _plugins.has_tpu() else "no")
    others = [p.source for p in _plugins.cpu_plugins() if not plugin or p.path != plugin.path]
    if others:
        devices.add_row("also installed", ", ".join(others))
    if plugin:
        try:
            torch.tpu.init()
        except (RuntimeError, ImportError) as error:
            devices.add_row("failed", str(error))
        else:
            properties = torch.tpu.get_device_properties(0)
            devices.add_row("platform", f"{properties.platform}, {properties.platform_version.splitlines()[0]}")
            for i in range(torch.tpu.device_count()):
                devices.add_row(f"tpu:{i}", torch.tpu.get_device_name(i))
            devices.add_row("eager mode", torchtpu.get_eager_mode())
    console.print(devices)

    counts, size = _usage(cache_folder())
    cache = _table("cache")
    cache.add_row("folder", str(cache_folder() or "none"))
    cache.add_row("programs", f"{counts}, {_human(size)}")
    console.print(cache)

    table = Table(title="settings", title_justify="left", header_style="bold")
    for column in ("variable", "value", "default", "legal", "meaning"):
        table.add_column(column, overflow="fold")
    known = settings()
    for name, default, legal, meaning in known:
        table.add_row(name, os.environ.get(name, ""), default, legal.replace("|", " | "), meaning)
    names = {row[0] for row in known}
    for name in sorted(n for n in os.environ if n.startswith("TORCHTPU_") and not n.startswith("TORCHTPU_TEST_")):
        if name not in names:
            table.add_row(name, os.environ[name], "", "", "[red]not known: a typing error?[/red]")
    console.print(table)


def _shim_built_for(_load, _core, _shim_build) -> str:
    try:
        return _load.shim().ttpu_shim_torch_version().decode()
    except ImportError:
        return _shim_build.built_for(_core.FOLDER / _shim_build.NAME) or "not built"


@main.command("build-shim")
def build_shim() -> None:
    """Compile the C++ shim for the installed torch, into the user's cache folder."""
    from . import _core, _shim_build

    description = _shim_build.describe()
    if description is None:
        raise click.ClickException("no torch is installed for this Python: pip install torch")
    start = time.monotonic()
    try:
        path = _shim_build.build(_core.PACKAGE, _core.FOLDER / _core.LIBRARY, description, verbose=True)
    except (RuntimeError, OSError) as error:
        raise click.ClickException(str(error)) from None
    console.print(f"built for torch {description['version']} in {time.monotonic() - start:.0f} s: {path}")


# --- the program cache -----------------------------------------------------------------------------------------------


@main.group()
def cache() -> None:
    """Compiled programs on disk."""


def cache_folder() -> Path | None:
    """The disk tier's folder; None where it is turned off."""
    given = os.environ.get("TORCHTPU_CACHE_DIR")
    if given is not None:
        return Path(given) if given else None
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torchtpu"


def _entries(folder: Path | None) -> list[tuple[Path, os.stat_result]]:
    """The cache's files, newest first: programs, and notes on which numbers are their inputs."""
    found = []
    if folder and folder.is_dir():
        for path in folder.iterdir():
            if path.is_file() and path.suffix in (".program", ".note"):
                try:
                    found.append((path, path.stat()))
                except FileNotFoundError:
                    continue  # another process evicted it
    return sorted(found, key=lambda e: -e[1].st_mtime)


def _usage(folder: Path | None) -> tuple[int, int]:
    entries = _entries(folder)
    return sum(path.suffix == ".program" for path, _ in entries), sum(s.st_size for _, s in entries)


@cache.command("list")
@click.option("--last", default=20, show_default=True, help="How many files, newest first.")
def cache_list(last: int) -> None:
    """Files of compiled programs, newest first."""
    table = Table(header_style="bold")
    table.add_column("key")
    table.add_column("size", justify="right")
    table.add_column("last used")
    entries = [e for e in _entries(cache_folder()) if e[0].suffix == ".program"]
    for path, stat in entries[:last]:
        table.add_row(path.stem, _human(stat.st_size), time.strftime("%Y-%m-%d %H:%M", time.localtime(stat.st_mtime)))
    console.print(table)
    if len(entries) > last:
        console.print(f"and {len(entries) - last} more")


@cache.command("stats")
def cache_stats() -> None:
    """How many programs the folder holds, and their size."""
    folder = cache_folder()
    count, size = _usage(folder)
    console.print(f"{folder or 'no folder'}: {count} programs, {_human(size)}")


@cache.command("prune")
@click.option("--days", type=float, default=None, help="Remove what was not used for so many days.")
@click.option("--all", "everything", is_flag=True, help="Remove everything.")
def cache_prune(days: float | None, everything: bool) -> None:
    """Remove compiled programs; running processes compile anew what they miss."""
    if days is None and not everything:
        raise click.UsageError("say --days N or --all")
    limit = time.time() - (days or 0) * 86400
    removed = size = 0
    for path, stat in _entries(cache_folder()):
        if everything or stat.st_mtime < limit:
            path.unlink(missing_ok=True)
            removed, size = removed + 1, size + stat.st_size
    console.print(f"removed {removed} files, {_human(size)}")


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    return table


def _human(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
