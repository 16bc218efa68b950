"""`rdmawire fuzz learn`: machines, and their comparison, from the command line."""

import json
import os
from pathlib import Path

import pytest

from rdmawire.fuzz.learn.machine import MealyMachine
from tests.cli.command import mistake, rdmawire, refused
from tests.fuzz.learn.golden_machines import FOLDER, golden

SMALL = "SEND_ONLY,GAP_SEND,RECV"


def learned(*words: str, status: int = 0) -> str:
    done = rdmawire("fuzz", "learn", *words)
    assert done.returncode == status, done.stderr
    assert "seed 1" in done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("algorithm", "form"), [("kv", "dot"), ("lsharp", "json"), ("kv", "mermaid")]
)
def test_a_machine_is_printed(algorithm: str, form: str) -> None:
    words = ("--inputs", SMALL, "--algorithm", algorithm, "--psn", "16777214", "--format", form)
    machine = golden("ibta-messages").restricted(SMALL.split(",")).minimal()
    shown = learned(*words)
    if form == "mermaid":
        assert shown == machine.as_mermaid()
    elif form == "json":
        assert MealyMachine.from_json(json.loads(shown)) == machine
    else:
        assert MealyMachine.from_dot(shown) == machine


def test_the_requester_is_learned() -> None:
    text = learned("--role", "requester", "--inputs", "credits", "--profile", "rxe")
    assert MealyMachine.from_dot(text) == golden("requester-credits")


@pytest.mark.slow
def test_the_requester_of_another_service_is_learned() -> None:
    text = learned("--role", "requester", "--service", "uc")
    assert MealyMachine.from_dot(text) == golden("requester-unreliable")


def test_datagrams_are_learned() -> None:
    assert MealyMachine.from_dot(learned("--service", "ud")) == golden("ibta-datagrams")


@pytest.mark.parametrize("words", [("cm", "sidr-active"), ("mpa", "start-up")])
def test_the_connection_manager_and_the_mpa_reader_are_learned(words: tuple[str, str]) -> None:
    text = learned("--role", words[0], "--inputs", words[1])
    assert MealyMachine.from_dot(text) == golden("-".join(words))


@pytest.mark.parametrize("form", ["json", pytest.param("dot", marks=pytest.mark.slow)])
def test_the_same_machine_as_in_a_file_ends_with_0(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"kept.{form}"
    words = ("--inputs", SMALL, "--format", form, "-o", str(path))
    assert learned(*words) == ""
    assert "no difference" in learned("--inputs", SMALL, "--against", str(path))


def test_differences_end_with_1_and_become_findings(tmp_path: Path) -> None:
    words = ("--profile", "rxe", "--against", "ibta", "--inputs", f"{SMALL},WRITE_ONLY")
    shown = learned(*words, "--findings", str(tmp_path), status=1)
    assert "SEND_ONLY GAP_SEND\n  rxe   NAK_SEQUENCE@0\n  ibta  -\n" in shown
    assert "WRITE_ONLY RECV\n  rxe   ok\n  ibta  ok,ACK@-1\n" in shown
    assert "IBA 9.7.4.1.2, 9.7.5.2.8" in shown
    assert shown.endswith("rxe and ibta: 2 differences\n")
    (folder,) = tmp_path.iterdir()
    assert f"finding:  {folder}" in shown
    again = rdmawire("fuzz", "replay", str(folder))
    assert again.returncode == 1
    assert "IBA 9.7.4.1.2, 9.7.5.2.8" in again.stdout


def test_agreed_differences_are_passed(tmp_path: Path) -> None:
    path = tmp_path / "agreed.txt"
    path.write_text("GAP_SEND NAK_SEQUENCE@0 -\n")
    words = ("--profile", "rxe", "--against", str(FOLDER / "ibta-messages.dot"), "--inputs", SMALL)
    shown = learned(*words, "--agreed", str(path), status=1)
    assert "GAP_SEND" not in shown
    assert "ok,ACK@-1" in shown


def test_agreed_differences_that_are_not_there_are_named(tmp_path: Path) -> None:
    path = tmp_path / "agreed.txt"
    path.write_text("GAP_SEND NAK_SEQUENCE@0 -\nRECVV ok ok\n")
    against = str(FOLDER / "ibta-messages.dot")
    words = ("--profile", "rxe", "--against", against, "--inputs", SMALL, "--agreed", str(path))
    done = rdmawire("fuzz", "learn", *words)
    names = f"rxe and {against}, in this order"
    assert f"agreed differences that {names}, do not have: RECVV ok ok\n" in done.stderr


def test_roles_and_inputs_are_listed() -> None:
    done = rdmawire("fuzz", "learn", "--list")
    assert done.returncode == 0
    assert "responder: " in done.stdout
    assert "  duplicates  READs and atomics" in done.stdout
    assert "GAP_SEND" in done.stdout
    one = rdmawire("fuzz", "learn", "--list", "--role", "mpa").stdout
    assert one.startswith("mpa: ")
    assert "responder: " not in one


def test_inputs_of_one_machine_alone_are_named(tmp_path: Path) -> None:
    path = str(tmp_path / "one.dot")
    rdmawire("fuzz", "learn", "--inputs", "SEND_ONLY,RECV", "-o", path)
    done = rdmawire("fuzz", "learn", "--inputs", "SEND_ONLY,GAP_SEND", "--against", path)
    assert done.returncode == 0
    assert "not compared, only ibta has the inputs: GAP_SEND" in done.stderr
    assert f"not compared, only {path} has the inputs: RECV" in done.stderr


def test_an_adapter_that_is_not_deterministic_ends_with_1() -> None:
    before = (
        "import rdmawire.fuzz.engine_target as made; counts = iter(range(10**9)); "
        "send = made.EngineTarget.send; made.EngineTarget.send = "
        "lambda self, frame: send(self, frame) if next(counts) % 10 else []; "
    )
    done = rdmawire("fuzz", "learn", "--inputs", SMALL, before=before)
    assert done.returncode == 1
    assert "rdmawire: engine is not deterministic: " in done.stderr


def test_without_aalpy_one_line_names_what_to_install() -> None:
    before = "import sys; sys.modules['aalpy'] = None; "
    done = rdmawire("fuzz", "learn", before=before)
    assert done.returncode == 2
    assert done.stderr == "rdmawire: learning needs AALpy: pip install 'rdmawire[learn]'\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files of which none is a machine to compare with."""
    folder = tmp_path_factory.mktemp("files")
    inputs = [f"I{number}" for number in range(200)]
    long = [{name: ["-", min(at + 1, 899)] for name in inputs[:5]} for at in range(900)]
    wide = [{name: ["-", (at + 1) % 400] for name in inputs} for at in range(400)]
    for name, text in (
        ("bad.dot", "digraph\n"),
        ("bad.json", "{"),
        ("deep.json", '{"a":' * 100_000),
        ("digits.json", '{"a": ' + "1" * 10_000 + "}"),
        ("long.json", json.dumps({"states": long})),
        ("wide.json", json.dumps({"states": wide})),
    ):
        (folder / name).write_text(text)
    os.mkfifo(folder / "pipe.dot")
    return folder


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--role", "respnder"), "no role is named 'respnder'; the nearest is responder"),
        (("--inputs", "GAPS"), "no input of a responder is named 'GAPS'; the nearest"),
        (("--role", "requester", "--inputs", "GAP"), "a requester has no input 'GAP'"),
        (("--service", "rd"), "service 'rd' is none of rc, uc, ud, xrc"),
        (("--role", "requester", "--service", "rd"), "service 'rd' is none of rc, uc, ud, xrc"),
        (("--role", "cm", "--inputs", "REQ,SYN"), "a connection manager has no input 'SYN'"),
        (("--role", "mpa", "--inputs", "I_SYN"), "the MPA reader has no input 'I_SYN'"),
        (("--role", "mpa", "--profile", "rxe"), "the MPA reader has no profile"),
        (("--role", "cm", "--service", "ud"), "a connection manager has no service"),
        (("--profile", "rxf"), "no profile is named 'rxf'; the nearest is rxe"),
        (("--against", "rxf"), "no profile is named 'rxf'; the nearest is rxe"),
        (("--against", "none.dot"), "--against: there is no such file, and no profile is named"),
        (("--against", "bad.dot"), "bad.dot: state machine: no line is a transition"),
        (("--against", "bad.json"), "bad.json: "),
        (("--inputs", "RECV", "-o", "no/such/folder"), "cannot write it"),
        (("--inputs", "RECV", "--against", "ibta", "--agreed", "bad.dot"), "line 1: expected"),
        (("--algorithm", "lstar"), "'lstar' is not one of"),
        (("--agreed", "bad.dot"), "--agreed has no use alone: add --against"),
        (("--findings", "f"), "--findings has no use alone: add --against"),
        (("--against", "rxe", "--format", "json"), "--format has no use with --against alone"),
        (
            ("--role", "requester", "--against", "rxe", "--findings", "f"),
            "--findings has no use with --role requester",
        ),
        (("--list", "--psn", "1"), "--list has no use for --psn"),
        (("--role", "requester", "--inputs", ""), "a requester has no input ''"),
        (("--against", "pipe.dot"), "pipe.dot: cannot read it: it is a named pipe"),
        (("--against", "deep.json"), "deep.json: not JSON: it is nested too deeply"),
        (("--against", "digits.json"), "digits.json: not JSON: a number has too many digits"),
        (("--against", "long.json"), "long.json: its states are too far from each other"),
        (("--against", "wide.json"), "wide.json: 80,000 transitions: a machine to compare with"),
        (("-o", ""), "the path is empty"),
        (("-o", "pipe.dot"), "pipe.dot: cannot write it: it is a named pipe"),
        (("--against", "rxe", "--findings", "bad.dot"), "'bad.dot' is a file"),
    ],
)
def test_mistakes_are_one_line(
    words: tuple[str, ...],
    message: str,
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(files)
    assert message in mistake("fuzz", "learn", *words)


def test_a_binary_file_of_agreed_differences_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "agreed"
    path.write_bytes(b"\xff" * 100)
    words = ("--inputs", "RECV", "--against", "ibta", "--agreed", str(path))
    assert f"{path}: 'utf-8' codec" in refused("fuzz", "learn", *words, status=2)
