#!/usr/bin/env python3
"""Fails on an include that points up: the layers of docs/architecture.md, by the includes of the sources.

Also: only src/pjrt knows PJRT's structs, only shim/ includes ATen, and the shim sees nothing of the core but its public
header and the few pure ones listed here.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: layer: the layers it may include besides itself
MAY_USE = {
    "base": set(),
    "pjrt": {"base"},
    "graph": {"base"},
    "hlo": {"graph", "base"},
    "ops": {"hlo", "graph", "base"},
    "compile": {"pjrt", "graph", "base"},
    "runtime": {"compile", "ops", "hlo", "graph", "pjrt", "base", "public"},
    "dist": {"runtime", "compile", "ops", "hlo", "graph", "pjrt", "base", "public"},
    "shim": {"public"},
}
#: Headers without state that more than their upper layers may include, with the reason.
SHARED = {
    "graph/dtype.h": ({"pjrt", "shim"}, "the table of element types"),
    "graph/dtype.def": ({"pjrt"}, "the table of element types"),
    "graph/inst.h": ({"shim"}, "the draft of an instance, which the shim fills on first sight of a call"),
}
PJRT_STRUCTS = {"pjrt/pjrt_api.h", "pjrt/pjrt_api.def", "pjrt/xla_ffi.h"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def layer_of(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return parts[1] if parts[0] == "src" else "public" if parts[0] == "include" else parts[0]


def target_of(source: Path, name: str) -> str | None:
    """The project's header that |name| means, as "layer/file" or "ttpu.h"; None for one from elsewhere."""
    if name == "ttpu.h" or (ROOT / "src" / name).is_file():
        return name
    beside = source.parent / name
    if beside.is_file() and ROOT / "src" in beside.parents:
        return str(beside.relative_to(ROOT / "src"))
    return None


def problems(source: Path):
    layer = layer_of(source)
    is_test = source.name.endswith(("_test.c", "_fuzz.c", "_bench.c")) or layer == "tests"
    for number, line in enumerate(source.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        where, name = f"{source.relative_to(ROOT)}:{number}", match.group(2)
        if re.match(r"(ATen|c10|torch|caffe2)/", name) and layer != "shim":
            yield f"{where}: only shim/ includes {name}"
        target = target_of(source, name)
        if target is None or layer in ("tests", "benchmarks"):
            continue
        if target in PJRT_STRUCTS and layer != "pjrt":
            yield f"{where}: only src/pjrt includes {target}"
        other = "public" if target == "ttpu.h" else target.split("/")[0]
        allowed = MAY_USE.get(layer, set()) | {layer}
        shared = layer in SHARED.get(target, (set(), ""))[0]
        if other not in allowed and not shared and not is_test:
            yield f"{where}: {layer} must not include {target} (it may use: {', '.join(sorted(allowed))})"


def main() -> int:
    sources = [p for folder in ("src", "include", "shim", "tests/c") for p in sorted((ROOT / folder).rglob("*"))]
    sources = [p for p in sources if p.suffix in (".c", ".h", ".cpp", ".def")]
    found = [problem for source in sources for problem in problems(source)]
    print("\n".join(found) if found else f"layers: {len(sources)} files, no include points up")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
