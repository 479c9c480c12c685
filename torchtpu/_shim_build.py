"""Describes the installed torch and compiles the shim against it, without importing torch.

CMake runs this file as a script (`describe`) for the wheel; `python -m torchtpu build-shim` and the import check use
`build` to compile the shim again when the installed torch is another one than the wheel was built for.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NAME = "libtorchtpu_shim.so"
#: Beside a shim that CMake built: the version of torch it was built against.
VERSION_FILE = "libtorchtpu_shim.version"


def describe() -> dict[str, str | int] | None:
    """Version, header folder, library folder and C++ ABI of the torch this interpreter would import; None without one."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        return None
    root = Path(spec.origin).parent
    version: dict[str, object] = {}
    try:
        exec(compile((root / "version.py").read_text(), "version.py", "exec"), version)
    except OSError:
        return None
    abi = 1
    config = root / "share" / "cmake" / "Torch" / "TorchConfig.cmake"
    if config.is_file():
        found = re.search(r"_GLIBCXX_USE_CXX11_ABI=(\d)", config.read_text())
        abi = int(found.group(1)) if found else 1
    return {
        "version": str(version["__version__"]),
        "include": str(root / "include"),
        "lib": str(root / "lib"),
        "cxx11_abi": abi,
    }


def minor(version: str) -> str:
    """'2.13.0+cpu' -> '2.13': the part of torch's version that its C++ interface changes with."""
    return ".".join(version.split("+")[0].split(".")[:2])


def compiler() -> str | None:
    """The C++ compiler of this machine, or None."""
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        if name and shutil.which(name.split()[0]):
            return name
    return None


def built_for(library: Path) -> str | None:
    """The torch version that a shim made by CMake was compiled against; None where there is no such shim."""
    record = library.parent / VERSION_FILE
    return record.read_text().strip() if library.is_file() and record.is_file() else None


def compatible(built: str, installed: str) -> bool:
    """Releases of one minor keep the C++ interface; development versions must agree exactly."""
    return built == installed or ("dev" not in built + installed and minor(built) == minor(installed))


def sources(package: Path) -> tuple[list[Path], list[Path]]:
    """The shim's C++ files and the folders of the headers they include: of the installed package or the source tree."""
    for root, folders in ((package, ["include"]), (package.parent, ["include", "src"])):
        found = sorted((root / "shim").glob("*.cpp"))
        if found and (root / "include" / "ttpu.h").is_file():
            return found, [root / folder for folder in folders]
    raise FileNotFoundError(f"the shim's sources are missing from {package}: reinstall torchtpu")


def cached_path(package: Path, torch: dict[str, str | int]) -> Path:
    """Where the shim for this torch and these sources lies once built: a private folder of the user."""
    files, includes = sources(package)
    digest = hashlib.sha256(json.dumps(torch, sort_keys=True).encode())
    for path in [*files, *sorted(files[0].parent.glob("*.h")), includes[0] / "ttpu.h"]:
        digest.update(path.read_bytes())
    root = os.environ.get("TORCHTPU_CACHE_DIR") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "torchtpu"
    )
    return Path(root) / "shim" / f"torch-{torch['version']}-{digest.hexdigest()[:16]}" / NAME


def build(package: Path, core: Path, torch: dict[str, str | int], verbose: bool = False) -> Path:
    """Compiles the shim for |torch| into the user's cache and returns its path.

    Raises RuntimeError when there is no compiler, or with the compiler's last lines when it fails. Safe against other
    processes doing the same: the result is moved into place in one step.
    """
    cxx = compiler()
    if cxx is None:
        raise RuntimeError("no C++ compiler was found (tried $CXX, c++, g++, clang++): install one, e.g. g++")
    files, includes = sources(package)
    target = cached_path(package, torch)
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    common = [
        *cxx.split(), "-std=gnu++20", "-O2", "-fPIC", "-fvisibility=hidden",
        f"-D_GLIBCXX_USE_CXX11_ABI={torch['cxx11_abi']}", *(f"-I{folder}" for folder in includes),
        f"-isystem{torch['include']}", f"-isystem{torch['include']}/torch/csrc/api/include",
    ]  # fmt: skip
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        # PyTorch's headers are parsed once. Compilers that find no use for the precompiled form read the header itself.
        header = shutil.copy(files[0].parent / "precompiled.h", scratch)
        common += [f"-I{files[0].parent}"]
        _run_all([[*common, "-x", "c++-header", header, "-o", header + ".gch"]], verbose)
        objects = [os.path.join(scratch, f.stem + ".o") for f in files]
        commands = [[*common, "-include", header, "-c", str(f), "-o", o] for f, o in zip(files, objects, strict=True)]
        _run_all(commands, verbose)
        out = os.path.join(scratch, NAME)
        lib = str(torch["lib"])
        _run_all([[*cxx.split(), "-shared", "-s", "-o", out, *objects, str(core), "-Wl,--no-as-needed",
                   f"-L{lib}", "-ltorch", "-ltorch_cpu", "-lc10"]], verbose)  # fmt: skip
        os.replace(out, target)
    return target


def _run_all(commands: list[list[str]], verbose: bool) -> None:
    """Runs compiler commands, as many at a time as there are cores."""
    running: list[tuple[list[str], subprocess.Popen[str]]] = []
    waiting = list(commands)
    try:
        while waiting or running:
            while waiting and len(running) < (os.cpu_count() or 1):
                command = waiting.pop(0)
                if verbose:
                    print(" ".join(command), file=sys.stderr)
                running.append((command, subprocess.Popen(command, stderr=subprocess.PIPE, text=True)))
            command, process = running.pop(0)
            message = process.communicate()[1]
            if process.returncode:
                tail = "\n".join(message.strip().splitlines()[-20:])
                raise RuntimeError(f"the C++ compiler failed:\n  {' '.join(command)}\n{tail}")
    finally:
        for _, process in running:
            process.kill()
            process.wait()


if __name__ == "__main__":
    description = describe()
    if description is None:
        sys.exit(1)
    print(json.dumps(description))
