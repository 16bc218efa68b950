"""Targets of users: what their methods return or raise is an error of one line, or a finding."""

from collections.abc import Callable
from typing import Any

import pytest

from rdmawire.errors import FuzzError, RdmaError
from rdmawire.fuzz.engine_target import EngineTarget
from rdmawire.fuzz.fuzzer import EngineFuzzer, RequesterFuzzer
from rdmawire.fuzz.target_results import MAX_FRAME, MAX_FRAMES

Result = Callable[..., Any]
FUZZERS = {"engine": EngineFuzzer, "requester": RequesterFuzzer}


def fuzzer(kind: str, method: str, result: Result) -> Any:
    """A fuzzer of an adapter of which one method returns something else."""
    changed = {method: lambda _, *arguments: result(*arguments)}
    target = type("Changed", (EngineTarget,), changed)()
    return FUZZERS[kind]({"kind": kind, "service": "rc"}, target)


WRONG: list[tuple[str, Any, str]] = [
    ("numbers", (1, 2), "numbers returned tuple, not a Numbers"),
    ("path", (b"",) * 3, "path returned tuple, not an AddressHandle and a MAC address"),
    ("path", (b"", b""), "path returned tuple, not an AddressHandle and a MAC address"),
    ("send", (b"",), "send returned tuple, not a list of frames"),
    ("send", [None], "a frame is of type NoneType, not bytes"),
    ("send", [b""] * (MAX_FRAMES + 1), "send returned 4097 frames: at most 4096 are compared"),
    ("send", [bytes(MAX_FRAME + 1)], "a frame has 65537 bytes: at most 65536 are compared"),
    ("wait", None, "wait returned NoneType, not a list of frames"),
    ("completions", None, "completions returned NoneType, not a list"),
    ("completions", [None], "completions returned NoneType, not a Completion"),
    ("completions", [1] * (MAX_FRAMES + 1), "completions returned 4097 completions: at most 4096"),
    ("memory", None, "memory returned NoneType, not bytes"),
    ("memory", b"x", "memory returned 1 byte, not "),
]


@pytest.mark.parametrize("kind", FUZZERS)
@pytest.mark.parametrize(("method", "result", "message"), WRONG)
def test_a_wrong_result_of_a_method_is_named(
    method: str, result: Any, message: str, kind: str
) -> None:
    with pytest.raises(FuzzError, match=f"^engine: {message}"):
        fuzzer(kind, method, lambda *_: result).batch(1, 0, 20)


def test_a_wrong_result_of_send_within_is_named() -> None:
    with pytest.raises(FuzzError, match="send_within returned str, not a list of frames"):
        fuzzer("engine", "send_within", lambda *_: "frames").batch(1, 0, 200)


def test_endless_completions_are_not_read() -> None:
    with pytest.raises(FuzzError, match="completions returned callable_iterator, not a list"):
        fuzzer("engine", "completions", lambda: iter(int, 1)).batch(1, 0, 1)


def fails(*_: object) -> None:
    raise RdmaError("it broke")


@pytest.mark.parametrize("kind", FUZZERS)
@pytest.mark.parametrize("method", ["reset", "numbers", "path", "send", "completions", "memory"])
def test_an_exception_of_any_method_is_a_finding(method: str, kind: str) -> None:
    fuzz = fuzzer(kind, method, fails)
    found = fuzz.batch(1, 0, 20).found
    assert {one.violation.signature for one in found} == {
        "exception | RdmaError test_target_results:fails"
    }
    smallest = fuzz.minimised(found[0])
    assert smallest.violation.happened.startswith("RdmaError: it broke in test_target_results")
    assert len(smallest.case["inputs"]) <= 1
    shown, frames = fuzz.replay(smallest.case)
    assert shown == smallest.violation
    assert len(frames) <= 2
    assert len(fuzz.describe(smallest.case)) == len(smallest.case["inputs"])
    if not smallest.case["inputs"]:
        with pytest.raises(FuzzError, match="before the first input"):
            fuzz.scenario(smallest.case, shown)


def test_many_frames_are_shortened_in_words() -> None:
    (found, *_) = fuzzer("engine", "send", lambda *_: [b"x"] * MAX_FRAMES).batch(1, 0, 20).found
    assert found.violation.happened.startswith("a damaged frame; a damaged frame; ")
    assert len(found.violation.happened) < 5000
    assert len(found.violation.signature) < 500
