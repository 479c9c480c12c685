"""Our PJRT header against an independent table: every offset, size and slot of what src/pjrt/pjrt_api.h declares.

The table is the ``pypjrt`` package's, generated from the published headers of PJRT API 0.114 and XLA FFI 0.3. A small C
program prints our side; struct names are taken from the header's text, so nothing here has to be kept in step.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest

abi = pytest.importorskip("pypjrt._abi.pjrt_0_114", reason="the pypjrt package is the reference table")

SOURCE = Path(__file__).resolve().parents[2] / "src"
HEADERS = [name for name in ("pjrt/pjrt_api.h", "pjrt/xla_ffi.h") if (SOURCE / name).exists()]

# Unions and named fields that the table spells in its own way.
ANONYMOUS = re.compile(r"^_anon\d+$")


def preprocessed() -> str:
    """The headers after the preprocessor: what the compiler sees, without comments and macros."""
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    text = "\n".join(f'#include "{name}"' for name in HEADERS)
    done = subprocess.run(
        [compiler, "-std=gnu11", "-E", "-P", "-I", str(SOURCE), "-x", "c", "-"],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def declared_structs(text: str) -> list[str]:
    """Names of the PJRT and XLA FFI structs that the headers define (not those they only name)."""
    tagged = re.findall(r"struct (\w+) \{", text)
    anonymous = re.findall(r"\} (\w+);", text)
    enums = re.findall(r"typedef enum (?:\w+ )?\{[^}]*\} (\w+);", text)
    return sorted({n for n in tagged + anonymous if n.startswith(("PJRT_", "XLA_FFI_"))} - set(enums))


def table_layout(struct: type[ctypes.Structure]) -> dict[str, tuple[int, int]]:
    """Offset and size of each field; members of an anonymous union count as the struct's own."""
    fields: dict[str, tuple[int, int]] = {}
    for name, kind, *_ in struct._fields_:
        at = getattr(struct, name).offset
        if ANONYMOUS.match(name):
            for inner, (offset, size) in table_layout(kind).items():
                fields[inner] = (at + offset, size)
        else:
            fields[name] = (at, ctypes.sizeof(kind))
    return fields


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, tuple[int, int]]]:
    """struct -> field -> (offset, size), with "" for the whole struct, as our headers have it."""
    folder = tmp_path_factory.mktemp("abi")
    names = [n for n in declared_structs(preprocessed()) if isinstance(getattr(abi, n, None), type)]
    lines = ["#include <stdio.h>"] + [f'#include "{name}"' for name in HEADERS] + ["int main(void) {"]
    for struct in names:
        lines.append(f'  printf("{struct} - 0 %zu\\n", sizeof({struct}));')
        for field in table_layout(getattr(abi, struct)):
            size = f"sizeof((({struct} *)0)->{field})"
            lines.append(f'  printf("{struct} {field} %zu %zu\\n", offsetof({struct}, {field}), {size});')
    lines.append("  return 0;\n}")
    source, program = folder / "abi.c", folder / "abi"
    source.write_text("\n".join(lines))
    done = subprocess.run(
        [shutil.which("cc"), "-std=gnu11", "-I", str(SOURCE), str(source), "-o", str(program)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"a field of the table is missing in our header:\n{done.stderr[:3000]}"
    layout: dict[str, dict[str, tuple[int, int]]] = {}
    for line in subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines():
        struct, field, offset, size = line.split()
        layout.setdefault(struct, {})["" if field == "-" else field] = (int(offset), int(size))
    return layout


def test_every_struct_is_in_the_table() -> None:
    declared = declared_structs(preprocessed())
    missing = [n for n in declared if not isinstance(getattr(abi, n, None), type)]
    assert len(declared) > 60
    assert not missing, f"no such struct in the table: {missing}"


def test_offsets_and_sizes(ours: dict[str, dict[str, tuple[int, int]]]) -> None:
    wrong = []
    for struct, fields in ours.items():
        reference = getattr(abi, struct)
        if fields[""][1] != ctypes.sizeof(reference):
            wrong.append(f"sizeof({struct}) is {fields[''][1]}, not {ctypes.sizeof(reference)}")
        for field, want in table_layout(reference).items():
            if fields[field] != want:
                wrong.append(f"{struct}.{field} is at {fields[field]}, not {want} (offset, size)")
    assert not wrong, "\n".join(wrong)
    assert sum(len(fields) - 1 for fields in ours.values()) > 400


def test_slots_are_in_order() -> None:
    rows = re.findall(r"^PJRT_SLOT\(.*, (\w+)\)$", (SOURCE / "pjrt/pjrt_api.def").read_text(), re.M)
    assert rows == sorted(abi.SLOT, key=abi.SLOT.get)


def test_slots_are_typed(ours: dict[str, dict[str, tuple[int, int]]]) -> None:
    for name, slot in abi.SLOT.items():
        assert ours["PJRT_Api"][name] == (abi.VTABLE_OFFSET + 8 * slot, 8)


@pytest.mark.parametrize(
    "ours_name, theirs",
    [
        (
            "PJRT_HostBufferSemantics_",
            ("kImmutableOnlyDuringCall", "kImmutableUntilTransferCompletes", "kImmutableZeroCopy", "kMutableZeroCopy"),
        ),
        ("PJRT_NamedValue_", ("kString", "kInt64", "kInt64List", "kFloat", "kBool")),
        ("PJRT_Buffer_MemoryLayout_Type_", ("Tiled", "Strides")),
        ("PJRT_Extension_Type_", ("FFI",)),
    ],
)
def test_enums(ours_name: str, theirs: tuple[str, ...], tmp_path: Path) -> None:
    names = [ours_name + tail for tail in theirs]
    source = tmp_path / "enum.c"
    checks = "\n".join(f'_Static_assert({n} == {getattr(abi, n)}, "{n}");' for n in names)
    source.write_text(f'#include "pjrt/pjrt_api.h"\n{checks}\n')
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    command = [compiler, "-std=gnu11", "-fsyntax-only", "-I", str(SOURCE), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_dtypes_and_codes() -> None:
    """dtype.def and status.def carry PJRT's numbers."""
    rows = re.findall(r"^DTYPE\((\w+),.*?,\s*(\d+),\s*\d+,\s*\"", (SOURCE / "graph/dtype.def").read_text(), re.M)
    pjrt_name = {"BOOL": "PRED", "F8E4M3": "F8E4M3FN"}
    assert len(rows) >= 17
    for name, number in rows:
        suffix = pjrt_name.get(name, re.sub(r"^I(\d)", r"S\1", name))
        assert getattr(abi, f"PJRT_Buffer_Type_{suffix}") == int(number), name
    codes = re.findall(r"^STATUS\((\w+),\s*(\d+)", (SOURCE / "base/status.def").read_text(), re.M)
    assert len(codes) == 17
    for name, number in codes:
        assert getattr(abi, f"PJRT_Error_Code_{name}") == int(number), name
