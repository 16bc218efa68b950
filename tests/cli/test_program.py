"""The command line: usage, help, completion, streams, interrupts."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rdmawire.cli.program import _COMMANDS
from tests.cli.command import RDMAWIRE, RNR, rdmawire, refused
from tests.waiting import HANG

COMMANDS = [*_COMMANDS]
SWEEP = ["collective", "transfer"]
FUZZ = ["run", "replay", "learn", "list"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("dissect", "-e", "infiniband.bth.opcod", RNR), "the nearest is infiniband.bth.opcode"),
        (("dissect", "-T", "fields", RNR), "-T fields needs at least one -e FIELD"),
        (("dissect", "-T", "text", "-e", "ip.src", RNR), "-e FIELD goes with -T fields"),
        (("dissect", "--from", "yesterday", RNR), "'yesterday' is no frame number"),
        (("dissect", "-E", "colour=red", "-e", "ip.src", RNR), "header=y|n"),
        (("dissect", "--from", "9" * 5000, RNR), "999...' is no frame number"),
        (("dissect", "--from", "7", "--to", "6", RNR), "the window ends before it begins"),
        (("dissect", "--from", "2ms", "--to", "1ms", RNR), "the window ends before it begins"),
        (("dissect", "-e", "ip.src", "-E", "separator=::", RNR), "separator=CHAR"),
        (("dissect", "-E", "header=y", RNR), "-E goes with -T fields"),
        (("dissect", "-V", "-T", "json", RNR), "-V goes with -T text"),
        (
            ("dissect", "-x", "-e", "ip.src", RNR),
            "json or ndjson; plain hex is in the `bytes` of",
        ),
        (("dissect", "-q", "-V", RNR), "-q only counts frames"),
        (("dissect", "--checksums", "icrc,crc", RNR), "'crc' is not one of icrc, vcrc"),
        (("dissect", "-c", "0", RNR), "0 is not in the range"),
        (("dissect", "--nope"), "No such option"),
        (("dissect", "-V", "-T", "json", RNR), "-V goes with -T text, and without -e;"),
        (("dissect", "-c", "x", RNR), "'x' is not a valid integer"),
        (("dissect", "--port", "x", RNR), "'x' is not a valid integer"),
        (("dissect", "-r"), "requires an argument; see `rdmawire dissect --help`"),
        (("x" * 5000,), f"no command is named '{'x' * 57}...'"),
        (("disect",), "no command is named 'disect'; the nearest is dissect"),
        ((RNR,), f"to see what the file holds: rdmawire dissect {RNR}"),
    ],
)
def test_wrong_usage_is_status_two_and_names_the_help(words: tuple[str, ...], message: str) -> None:
    line = refused(*words, status=2)
    assert message in line
    assert line.endswith("--help`")


def test_a_closed_pipe_is_silent() -> None:
    command = " ".join(f"'{word}'" for word in [*RDMAWIRE, "dissect", "-V", RNR]) + " | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, check=False, timeout=HANG
    )
    assert done.stderr == b""
    assert done.returncode == 0


def test_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*RDMAWIRE, "dissect", "-V", RNR], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[-1] == (
        "rdmawire: cannot write the output: No space left on device"
    )


def test_colour_only_when_asked_for_or_in_a_terminal() -> None:
    assert "\x1b[" not in rdmawire("dissect", RNR).stdout
    assert "\x1b[" in rdmawire("dissect", "--color", "always", RNR).stdout


def test_hostile_text_harms_no_terminal(tmp_path: Path) -> None:
    from rdmawire.capture import COMMENT, Record, create_capture

    path = tmp_path / "comment.pcapng"
    with create_capture(path) as writer:
        writer.write(Record(b"x", 0, 1, 1, options=((COMMENT, b"red \x1b[31m\nnext"),)))
    for words in (("-V",), ("-e", "frame.comment")):
        shown = rdmawire("dissect", *words, str(path)).stdout
        assert "\x1b" not in shown
        assert r"red \x1b[31m\nnext" in shown


_ODD = "é 😀 \x9b31m \x7f \u202e \u2028"
_ASCII = {"PYTHONIOENCODING": "ascii"}
_C = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize("env", [{}, _ASCII, _C])
@pytest.mark.parametrize(
    "words", [("-T", "json"), ("-T", "json", "-q"), ("-T", "json", "-e", "frame.comment")]
)
def test_json_is_ascii_in_every_locale(
    tmp_path: Path, env: dict[str, str], words: tuple[str, ...]
) -> None:
    from rdmawire.capture import COMMENT, Record, create_capture

    path = tmp_path / "é.pcapng"
    with create_capture(path) as writer:
        writer.write(Record(b"x", 0, 1, 1, options=((COMMENT, _ODD.encode()),)))
    text = rdmawire("dissect", *words, str(path), env=env).stdout
    assert text.replace("\n", "").isprintable()
    assert text.isascii()
    assert len(json.loads(text)) == 1


def test_odd_file_names_harm_no_terminal(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/red\x1b[31m\n\xff"
    Path(os.fsdecode(path)).write_bytes(Path(RNR).read_bytes())
    done = subprocess.run(
        [*RDMAWIRE, "dissect", "-q", path, path + b"?"], capture_output=True, check=False
    )
    first, *_ = done.stdout.decode().splitlines()
    assert first.startswith(f"{tmp_path}/red\\x1b[31m\\n\\udcff: 152 frames;")
    assert done.stderr.decode().endswith("\\udcff?: there is no such file; check its name\n")


def test_fields_are_listed() -> None:
    lines = rdmawire("fields").stdout.splitlines()
    names = [line.split("\t")[0] for line in lines]
    assert names == sorted(set(names))
    assert {"infiniband.bth.psn", "rdmawire.bth.fecn", "frame.number"} <= set(names)
    assert "infiniband.bth.psn\tFT_UINT24\tIBA 9.2.9" in "\n".join(lines)
    assert rdmawire("fields", "ip.ecn").stdout.split("\t")[0] == "ip.dsfield.ecn"
    assert next(line for line in lines if line.startswith("infiniband.bth.psn\t")).endswith(
        "\tbth.psn"
    )
    found = json.loads(rdmawire("fields", "--json", "bth.fecn").stdout)
    assert [info["name"] for info in found] == ["rdmawire.bth.fecn"]


def test_fields_are_found_by_what_they_mean_too() -> None:
    lines = rdmawire("fields", "SHOULD have been").stdout.splitlines()
    assert "rdmawire.icrc.expected" in [line.split("\t")[0] for line in lines]
    assert "infiniband.cm.req.retrcount\t" in rdmawire("fields", "retry count").stdout
    assert "contains 'nonsuch'" in refused("fields", "nonsuch", status=1)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    assert "_RDMAWIRE_COMPLETE" in rdmawire("completion", shell).stdout


def test_completion_knows_the_fields() -> None:
    done = rdmawire(
        env={
            "_RDMAWIRE_COMPLETE": "bash_complete",
            "COMP_WORDS": "rdmawire dissect -e infiniband.bth.ps",
            "COMP_CWORD": "3",
        }
    )
    assert "infiniband.bth.psn" in done.stdout


@pytest.mark.parametrize(
    "env",
    [
        {"_RDMAWIRE_COMPLETE": "nonsense"},
        {"_RDMAWIRE_COMPLETE": "bash_complete"},
        {"_RDMAWIRE_COMPLETE": "bash_complete", "COMP_WORDS": "rdmawire"},
        {"_RDMAWIRE_COMPLETE": "zsh_complete", "COMP_WORDS": "rdmawire", "COMP_CWORD": "x"},
        {"_RDMAWIRE_COMPLETE": "zsh_complete", "COMP_WORDS": "rdmawire", "COMP_CWORD": "9" * 5000},
    ],
)
def test_completion_without_the_variables_of_a_shell_is_wrong_usage(env: dict[str, str]) -> None:
    done = rdmawire(env=env)
    assert done.returncode == 2
    assert done.stderr.startswith("rdmawire: _RDMAWIRE_COMPLETE")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        [],
        *([name] for name in COMMANDS),
        *(["fuzz", name] for name in FUZZ),
        *(["sweep", name] for name in SWEEP),
    ],
)
def test_help_has_examples(command: list[str]) -> None:
    done = rdmawire(*command, "--help")
    assert done.returncode == 0
    examples = done.stdout.split("Example")[1]
    assert all(len(line.split("rdmawire")) <= 3 for line in examples.splitlines())
    assert "rdmawire" in examples
    assert "\\" not in done.stdout


@pytest.mark.parametrize(
    "command",
    [
        *([name] for name in COMMANDS),
        *(["fuzz", name] for name in FUZZ),
        *(["sweep", name] for name in SWEEP),
    ],
)
def test_every_option_is_under_a_heading(command: list[str]) -> None:
    help_ = rdmawire(*command, "--help").stdout
    groups = re.findall(r"^([A-Z][\w ]+):\n((?:  .*\n)+)", help_, re.MULTILINE)
    other = dict(groups)["Options"]
    assert re.findall(r"^  (\S+)", other, re.MULTILINE) == ["-h,"]
    assert [heading for heading, _ in groups][-1] == "Examples"
    assert "INTEGER RANGE" not in help_


@pytest.mark.parametrize(("env", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_help_is_coloured_in_a_terminal_only(env: dict[str, str], coloured: bool) -> None:
    control, terminal = os.openpty()
    plain = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    subprocess.run(
        [*RDMAWIRE, "fields", "--help"], stdout=terminal, check=True, timeout=HANG,
        env={**plain, **env},
    )  # fmt: skip
    os.close(terminal)
    shown = os.read(control, 1 << 16)
    os.close(control)
    assert (b"\x1b[" in shown) == coloured
    assert "\x1b" not in rdmawire("fields", "--help").stdout


def test_a_terminal_is_not_waited_for() -> None:
    control, terminal = os.openpty()
    done = subprocess.run(
        [*RDMAWIRE, "dissect"], stdin=terminal, capture_output=True, check=False, timeout=HANG
    )
    os.close(control)
    os.close(terminal)
    assert done.returncode == 2
    assert b"no FILE is given, and standard input is a terminal" in done.stderr


def test_starting_loads_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *RDMAWIRE[1:], "--help"],
        capture_output=True,
        check=True,
    )
    loaded = {line.split("|")[-1].strip() for line in done.stderr.decode().splitlines()}
    heavy = {"rich", "scapy", "numpy", "hypothesis", "zstandard", "lz4", "re2", "rdmawire.wire.ib"}
    assert not heavy & loaded
    own = {name for name in loaded if name.startswith("rdmawire.") and ".cli." not in name}
    assert own <= {"rdmawire.cli", "rdmawire.errors", "rdmawire.terminal"}


def test_an_interrupt_is_one_line() -> None:
    running = subprocess.Popen(
        [*RDMAWIRE, "dissect", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert running.stdin is not None
    assert running.stdout is not None
    running.stdin.write(Path(RNR).read_bytes())
    running.stdin.flush()
    running.stdout.read(1)  # it is at work
    running.send_signal(2)
    _, errors = running.communicate(timeout=HANG)
    assert running.returncode == 130
    assert errors.decode().strip() == "rdmawire: interrupted"


_INTERRUPTED_BY_CLICK = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Interrupt:
    def find_spec(self, name, path, target=None):
        if name == "click":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
from rdmawire.cli.main import main
main()
"""


def test_an_interrupt_while_it_loads_is_silent() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED_BY_CLICK], capture_output=True, check=False
    )
    assert done.stderr == b""
    assert done.returncode == -2


def test_an_interpreter_without_docstrings_is_refused() -> None:
    assert rdmawire("--help", env={"PYTHONOPTIMIZE": "1"}).returncode == 0
    done = rdmawire("--help", env={"PYTHONOPTIMIZE": "2"})
    assert done.returncode == 1
    assert done.stderr == "rdmawire: python -OO removes the help; use -O\n"
