"""Planted mistakes in parsers: found, minimised, kept as findings and played again."""

import os
import re
import signal
import sys
import zlib
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rdmawire.capture import LinkType, open_capture
from rdmawire.errors import Ended, FuzzError
from rdmawire.filter import Filter
from rdmawire.fuzz import isolated_parser, parser_fuzzer, parsers
from rdmawire.fuzz.campaign import Campaign
from rdmawire.fuzz.command_target import write_frames
from rdmawire.fuzz.exception_text import raised_in
from rdmawire.fuzz.finding import findings_in, replay
from rdmawire.fuzz.frame_mutation import Mutant, Mutation, SeedFrame, mutants_from_json
from rdmawire.fuzz.fuzzer import make_fuzzer
from rdmawire.fuzz.isolated_parser import IsolatedParser
from rdmawire.fuzz.minimise_mutants import built, minimise_bytes, minimise_mutants
from rdmawire.fuzz.other_values import OtherValuesError, check_values
from rdmawire.fuzz.parser_target import (
    FORMS,
    FunctionParser,
    exceptions_named,
    form_named,
    function_named,
)
from rdmawire.fuzz.parsers import PARSERS, filter_corpus
from rdmawire.fuzz.seed_corpus import corpus_of
from rdmawire.wire.packet import Packet
from tests.fuzz import planted_parsers as planted

CORPUS = corpus_of()
HERE = "tests.fuzz.planted_parsers"
FRAMES = list(CORPUS.frames())[:64]


def spec(function: str, **more: Any) -> dict[str, Any]:
    return {"kind": "parser", "function": f"{HERE}:{function}", **more}


# Functions.


def test_a_parser_that_fails_on_a_length_is_found_and_minimised(tmp_path: Path) -> None:
    campaign = Campaign(spec("fails_on_length"), 1, tmp_path, runs=100)
    (finding,) = campaign.run()
    violation = finding.violation
    assert violation.signature == "exception | IndexError | planted_parsers:fails_on_length"
    assert violation.expected == "a result or RdmaError"
    assert "IndexError: index out of range" in violation.happened
    (one,) = mutants_from_json(finding.case)
    assert len(one.mutations) <= 1
    assert one.checksum == "GOOD"
    assert replay(finding) == violation
    assert list(findings_in(tmp_path)) == [finding]
    with open_capture(tmp_path / finding.name / "packets.pcapng") as reader:
        assert [record.data for record in reader] == [one.build()]
    assert one.seed.name in (tmp_path / finding.name / "report.txt").read_text()


@pytest.mark.parametrize(
    ("bug", "expected", "found"),
    [
        ("psn-with-ackreq", r"packet: psn \d+", r"packet: psn \d+"),
        ("pad-longer-than-payload", "packet: refused", r"packet: opcode \d+, psn .*"),
        ("mpa-crc-not-checked", "FPDU .*: good False", "FPDU .*: good True"),
        ("any-udp-port", "offset of the BTH: no BTH", "offset of the BTH: 42"),
        ("icrc-big-endian", "ICRC: good", "ICRC: bad"),
    ],
)
def test_a_finding_of_other_values_names_the_expected_ones(
    bug: str, expected: str, found: str
) -> None:
    campaign = Campaign({"kind": "parser", "bug": bug}, 1, runs=3000)
    campaign.max_findings = 1
    (finding,) = campaign.run()
    assert re.fullmatch(rf"{expected} \(the codec of rdmawire\)", finding.violation.expected)
    assert re.fullmatch(rf"{found} \(the parser\)", finding.violation.happened)


class _Values(NamedTuple):
    number: int
    data: bytes


@pytest.mark.parametrize(
    ("found", "expected", "texts"),
    [
        (None, _Values(1, b""), ("refused", "number 1, data empty")),
        (_Values(1, b"a"), _Values(2, b"a"), ("number 1", "number 2")),
        (_Values(1, b"a"), _Values(1, b""), ("data 61", "data empty")),
        (
            bytes(30),
            bytes(28),
            ("30 bytes, from byte 28 on 0000", "28 bytes, from byte 28 on nothing"),
        ),
        (
            bytes(99),
            bytes(9) + b"\1" * 90,
            (
                f"99 bytes, from byte 9 on {'00' * 24}...",
                f"99 bytes, from byte 9 on {'01' * 24}...",
            ),
        ),
        ((b"a", b""), (), ("61, empty", "none")),
    ],
    ids=("refused", "number", "empty", "longer", "long", "none"),
)
def test_other_values_are_named(found: object, expected: object, texts: tuple[str, str]) -> None:
    with pytest.raises(OtherValuesError) as caught:
        check_values("it", found, expected)
    assert caught.value.found == f"it: {texts[0]} (the parser)"
    assert caught.value.expected == f"it: {texts[1]} (the codec of rdmawire)"
    assert str(caught.value) == f"expected {caught.value.expected}, found {texts[0]}"
    check_values("it", found, found)


def test_bytes_that_are_not_built_as_they_were_parsed_are_found() -> None:
    with pytest.raises(OtherValuesError) as caught:
        parsers._check_same(b"\1", b"\2", Packet.parse)
    assert caught.value.found == "bytes rebuilt of Packet.parse: 01 (the parser)"
    assert caught.value.expected == (
        "bytes rebuilt of Packet.parse: 02 (the bytes that were parsed)"
    )


def test_a_length_that_is_trusted_is_found() -> None:
    (finding,) = Campaign(spec("trusts_udp_length"), 1, runs=100).run()
    assert "struct" not in finding.violation.expected
    (one,) = mutants_from_json(finding.case)
    assert len(one.mutations) <= 1
    expected = spec("trusts_udp_length", expected="rdmawire.errors:WireError, struct:error")
    assert Campaign(expected, 1, runs=100).run() == []


def test_a_healthy_parser_has_no_findings() -> None:
    assert Campaign(spec("healthy"), 1, runs=300).run() == []


def test_a_parser_that_never_ends_is_found() -> None:
    parser = FunctionParser(planted.never_ends, seconds=0.05)
    found = parser.judge([SeedFrame(b"fine"), SeedFrame(b"\xff\xff")])
    assert found is not None
    assert (found.place, found.what, found.signature) == (1, "time", "time | no result in time")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Ended(signal.SIGTERM)])
def test_a_signal_that_ends_the_run_is_not_a_finding(error: BaseException) -> None:
    def interrupted(_: bytes) -> None:
        raise error

    with pytest.raises(type(error)):
        FunctionParser(interrupted).judge(FRAMES[:1])


@pytest.mark.parametrize(
    ("function", "ending"),
    [
        ("ends_its_process", "by SIGSEGV"),
        pytest.param("exits", "with status 3", marks=pytest.mark.slow),
    ],
)
def test_a_call_that_ends_its_process_is_found_and_minimised(
    function: str, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(parser_fuzzer._SLOW_TRIALS, isolated_parser.PROCESS, 2)
    campaign = Campaign(spec(function), 1, tmp_path, runs=100, max_findings=1)
    (finding,) = campaign.run()
    assert finding.violation.happened == f"the process ended {ending}"
    assert len(mutants_from_json(finding.case)) == 1
    assert replay(finding) == finding.violation
    fuzzer = make_fuzzer(spec(function))
    found = fuzzer.batch(1, 30, 70).found
    assert len(found) > 1  # other cases are judged by other processes
    assert {one.violation.signature for one in found} == {finding.violation.signature}
    assert len({one.run for one in found}) == len(found)


def test_a_call_that_does_not_return_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated_parser, "_MARGIN_S", 0.0)
    found = make_fuzzer(spec("never_returns", seconds=0.5)).batch(1, 0, 1).found
    assert [one.violation.signature for one in found] == ["time | no result in time"]


def test_a_parser_that_is_not_read_to_the_end_goes_on_with_the_right_case() -> None:
    parser = IsolatedParser(partial(FunctionParser, planted.fails_on_length), "parser", 10)
    frames = [one for one in FRAMES if one.link_type == LinkType.ETHERNET]
    results = [parser.judge([one]) for one in frames]
    assert any(results)
    assert any(one is None for one in results)
    bad = next(place for place, result in enumerate(results) if result is not None)
    good = results.index(None)
    begun = parser.judge_all([[frames[bad]], [frames[bad]], [frames[good]]])
    assert next(begun) == results[bad]
    assert parser.judge([frames[good]]) is None
    assert parser.judge([frames[bad]]) == results[bad]
    assert next(begun) == results[bad]
    assert isinstance(begun, Generator)
    begun.close()
    assert parser.judge([frames[good]]) is None
    parser.close()


def fails_to_start() -> FunctionParser:
    os._exit(4)


def test_a_process_that_ends_before_its_first_case_is_an_error() -> None:
    with pytest.raises(FuzzError, match=r"parser: its process ends before .* with status 4"):
        IsolatedParser(fails_to_start, "parser", 10).judge(FRAMES[:1])


def test_an_exit_is_a_finding() -> None:
    found = FunctionParser(lambda _: sys.exit(3)).judge(FRAMES[:1])
    assert found is not None
    assert "SystemExit" in found.signature


@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_bytes_of_any_frame(name: str) -> None:
    given = list(FORMS[name](FRAMES))
    assert given
    assert all(isinstance(one, bytes) for one in given)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(FuzzError, match="frame"):
        form_named("fame")
    for name in ("no.such.module:f", "rdmawire.wire.roce:prase", "rdmawire.wire.roce:"):
        with pytest.raises(FuzzError):
            function_named(name)
    with pytest.raises(FuzzError):
        exceptions_named(["print"])
    for bad in (
        {"kind": "parser", "function": "frame"},
        {"kind": "parser", "function": "frames", "speed": 1},
        spec("healthy", seconds="soon"),
        spec("healthy", seconds=0),
        {"kind": "command", "command": "tshark -r x"},
        {"kind": "command", "command": "tshark -r {pcap}", "patterns": ["("]},
        {"kind": "command", "command": "tshark -r {pcap}", "statuses": "none"},
    ):
        with pytest.raises(FuzzError):
            make_fuzzer(bad)


# The parsers of rdmawire.


@pytest.mark.parametrize("name", PARSERS)
def test_the_parsers_of_rdmawire_are_healthy(name: str) -> None:
    assert Campaign({"kind": "parser", "function": name}, 3, runs=60).run() == []


def test_the_corpus_of_filters_is_valid() -> None:
    for seed in filter_corpus().frames():
        Filter(seed.name)


# Minimising.


def test_bytes_are_minimised() -> None:
    wanted = {b"\x07"[0], b"\x09"[0]}
    assert minimise_bytes(bytes(range(64)), lambda data: wanted <= set(data)) == b"\x07\x09"
    assert minimise_bytes(b"abcdef", lambda data: len(data) >= 3) == bytes(3)


def test_mutants_are_minimised_to_the_frames_and_mutations_needed() -> None:
    frame = next(one for one in FRAMES if b"\x12\xb7" in one.data[36:38])
    needed = Mutation("set", "udp", row="length", value=0xFFFF)
    beside = Mutation("set", "bth", row="psn", value=1)
    mutants = (Mutant(FRAMES[0]), Mutant(frame, (beside, needed, beside), "STALE"), Mutant(frame))
    parser = FunctionParser(planted.trusts_udp_length)
    found = parser.judge(built(mutants))
    assert found is not None
    best, shown = minimise_mutants(parser, mutants, found)
    assert best == (Mutant(frame, (needed,)),)
    assert shown == found._replace(place=0)


# Names and settings that are refused, and what exceptions are described by.


def test_settings_of_a_finding_with_other_types_are_refused() -> None:
    frames = {"kind": "parser", "function": "frames"}
    for spec, message in (
        (frames | {"corpus": ["a"]}, "corpus: .* is not the path of a folder"),
        (frames | {"corpus": ""}, "corpus: '' is not the path of a folder"),
        (frames | {"expected": [1]}, "expected: 1 is not a text"),
        (frames | {"seconds": "inf"}, "seconds: 'inf': use a number above 0, at most 1000000"),
        (frames | {"seconds": 1e30}, "use a number above 0, at most"),
        ({"kind": "codecs", "libraries": [1]}, "libraries: 1 is not a text"),
        ({"kind": "command", "command": "a {pcap}", "patterns": [1]}, "patterns: 1 is not a text"),
    ):
        with pytest.raises(FuzzError, match=message):
            make_fuzzer(spec)


def test_only_files_of_a_folder_are_a_corpus(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "endless.pcap")
    (tmp_path / "folder.pcapng").mkdir()
    with pytest.raises(FuzzError, match="no file ends with"):
        corpus_of(tmp_path)


def test_values_of_a_damaged_finding_are_refused(tmp_path: Path) -> None:
    values: dict[str, Any] = {"data": "00", "mutations": [], "seed": ""}
    wrong: list[object] = [[], {}, None, 1]
    for checksum in wrong:
        with pytest.raises(FuzzError, match="checksum is one of"):
            Mutant.from_json({**values, "checksum": checksum})
    with pytest.raises(FuzzError, match=r"seed corpus: x+.*: File name too long"):
        corpus_of(Path("x" * 5000))
    with pytest.raises(FuzzError, match="link type -1: no capture has such frames"):
        write_frames(tmp_path, [SeedFrame(b"", -1)])


class NoText(Exception):
    """An exception whose text cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError


class TextExits(BaseException):
    """An exception whose text raises an exception that is no error."""

    def __str__(self) -> str:
        raise SystemExit


@pytest.mark.parametrize(
    ("error", "happened"),
    [
        (NoText(), "NoText (its text cannot be read)"),
        (TextExits(), "TextExits (its text cannot be read) in test_parser_target:fail"),
        (type("E\x1b", (Exception,), {})(), r"E\x1b in test_parser_target:fail"),
        (ValueError("\ud800\x1b"), r"ValueError: \ud800\x1b"),
        (GeneratorExit(), "GeneratorExit"),
    ],
)
def test_any_exception_is_described(error: BaseException, happened: str) -> None:
    def fail(_: bytes) -> None:
        raise error

    found = FunctionParser(fail).judge([SeedFrame(b"x", 1, "x")])
    assert found is not None
    assert found.happened.startswith(happened)


class WithoutTraceback(Exception):
    """An exception with another attribute where its traceback is."""

    __traceback__ = property(lambda _: None)


def test_the_traceback_of_any_exception_is_found() -> None:
    try:
        raise WithoutTraceback
    except WithoutTraceback as error:
        where, _ = raised_in(error)
    assert where == "test_parser_target:test_the_traceback_of_any_exception_is_found"


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("raise SystemExit(4)", "importing it raises SystemExit: 4"),
        ("def parse(", "importing it raises SyntaxError"),
        ("raise RuntimeError('boom')", "importing it raises RuntimeError: boom"),
        ("def parse(data):\n    yield 1\n", "a call does not run it"),
        ("async def parse(data):\n    pass\n", "a call does not run it"),
    ],
)
def test_functions_that_cannot_be_fuzzed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, message: str
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"unusable_{zlib.crc32(module.encode())}"
    (tmp_path / f"{name}.py").write_text(module)
    with pytest.raises(FuzzError, match=message):
        function_named(f"{name}:parse")


def test_a_relative_name_is_refused() -> None:
    with pytest.raises(FuzzError, match="no module has such a name"):
        function_named(".x:y")
