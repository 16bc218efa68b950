"""What comes from frames, files and names controls no terminal, in whatever form it is printed."""

import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdmawire.capture import Interface, create_capture, open_capture
from rdmawire.capture.record import COMMENT
from rdmawire.terminal import escape_lines
from tests.cli.command import RDMAWIRE, RNR, rdmawire
from tests.waiting import HANG

HOSTILE = "\x1b]0;owned\x07\x9b31m\x7f\u202e\r\nsecond line\u2028é"
FIELDS = ("-e", "frame.number", "-e", "frame.interface_name", "-e", "frame.comment")
FORMS = {
    "a line per frame": (),
    "trees": ("-V", "-x"),
    "fields": ("-T", "fields", *FIELDS),
    "json": ("-T", "json"),
    "json of fields": ("-T", "json", *FIELDS),
    "ndjson": ("-T", "ndjson", *FIELDS),
    "csv": ("-T", "csv", *FIELDS),
    "counts": ("-q",),
}


@pytest.fixture
def hostile(tmp_path: Path) -> str:
    """A capture whose interface and comments have control characters in their names."""
    path = tmp_path / f"{HOSTILE[:5]}.pcapng"
    with open_capture(RNR) as reader:
        records = list(reader)[:3]
    with create_capture(path, interfaces=[Interface(name=HOSTILE)]) as writer:
        for record in records:
            writer.write(record._replace(interface=0, options=((COMMENT, HOSTILE.encode()),)))
    return str(path)


def on_terminal(*words: str) -> str:
    """All that a command prints to a terminal, standard error too."""
    ours, theirs = pty.openpty()
    running = subprocess.Popen([*RDMAWIRE, *words], stdout=theirs, stderr=theirs)
    os.close(theirs)
    found = b"".join(read_all(ours))
    os.close(ours)
    assert running.wait(timeout=HANG) == 0
    return found.decode()


def read_all(terminal: int) -> Iterator[bytes]:
    """What comes until the other end is closed, which Linux reports by an error."""
    try:
        while data := os.read(terminal, 1 << 16):
            yield data
    except OSError:
        return


def controls(text: str) -> set[str]:
    return {c for c in text if not c.isprintable() and c not in "\r\n\t"}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_frames_control_no_terminal(hostile: str, form: tuple[str, ...]) -> None:
    shown = on_terminal("dissect", "--color", "never", *form, hostile)
    assert controls(shown) == set()
    if "frame.comment" in form:
        assert "second line" in shown
        assert "owned" in shown


def test_a_table_for_another_program_has_what_frames_have(hostile: str) -> None:
    done = rdmawire("dissect", "-T", "csv", *FIELDS, hostile)
    assert done.stdout.count(HOSTILE) == 6


def test_what_stands_in_a_scenario_controls_no_terminal(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    text = f"name: {HOSTILE}\n\tkept: yes\n"
    path.write_text(text, newline="")
    shown = on_terminal("run", "--show", str(path))
    assert controls(shown) == set()
    assert "\n\tkept: yes" in shown
    assert rdmawire("run", "--show", str(path)).stdout == text


def test_lines_stay_lines() -> None:
    assert escape_lines("one\r\ntwo\n\tthree é") == "one\ntwo\n\tthree é"
    assert escape_lines("a\rb\x1b\x9b\x00") == "a\\rb\\x1b\\x9b\\x00"
