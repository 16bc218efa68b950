"""What `rdmawire verbs` prints about programs that do not load the libraries."""

import os
import struct
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from rdmawire.cli.program import cli
from rdmawire.cli.verbs.executable import note_of

GLIBC, MUSL = b"/lib64/ld-linux-x86-64.so.2\0", b"/lib/ld-musl-x86_64.so.1\0"


def elf(interpreter: bytes | None, bits: int = 2, segment_size: int = 56) -> bytes:
    """An executable file of 64 bits (``bits`` 2), with a segment for its interpreter."""
    count = 1 if interpreter is None else 2
    ident = b"\x7fELF" + bytes((bits, 1, 1)) + bytes(9)
    head = struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0, 64, 0, 0, 64, segment_size, count, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 0, 0, 4096)
    found = interpreter or b""
    size = len(found)
    named = struct.pack("<IIQQQQQQ", 3, 4, 64 + 2 * 56, 0, 0, size, size, 1)
    return ident + head + load + named + found


@pytest.mark.parametrize(
    ("content", "note"),
    [
        (elf(GLIBC), None),
        (b"#!/bin/sh\n", None),
        (b"", None),
        (elf(MUSL), "uses musl"),
        (elf(None), "is linked statically"),
        (elf(GLIBC, bits=1), "another processor or word size"),
        (elf(GLIBC)[:40], None),
        (elf(GLIBC)[:80], None),
        (elf(GLIBC, segment_size=0), None),
    ],
)
def test_files_say_whether_they_load_libraries(
    tmp_path: Path, content: bytes, note: str | None
) -> None:
    path = tmp_path / "program"
    path.write_bytes(content)
    found = note_of(str(path))
    assert found is None if note is None else note in (found or "")


def test_programs_with_more_rights_ignore_the_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "program"
    path.write_bytes(elf(GLIBC))
    for mode in (0o4755, 0o2755):
        path.chmod(mode)
        assert note_of(str(path)) is None
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    path.chmod(0o4755)
    assert "ignores LD_LIBRARY_PATH" in (note_of(str(path)) or "")


def test_this_interpreter_and_missing_files_have_no_note() -> None:
    assert note_of(sys.executable) is None
    assert note_of("/no/such/file") is None


def test_the_note_is_one_line_before_the_program_runs(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(elf(None))
    path.chmod(0o755)
    done = CliRunner().invoke(cli, ["verbs", "--", str(path)])
    assert done.output.startswith(f"rdmawire: note: {path} is linked statically")
    quiet = CliRunner().invoke(cli, ["verbs", "-q", "--", str(path)])
    assert "linked" not in quiet.output
