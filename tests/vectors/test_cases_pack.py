"""A pack of vectors: the shipped one read whole, and hostile ones refused in one line."""

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.capture import LinkType, Record, create_capture, open_capture
from rdmawire.vectors import cases as packs
from rdmawire.vectors.cases import (
    Case,
    PackError,
    captures,
    cases,
    default_folders,
    find_pack,
    records,
)

CAPTURES = Path(__file__).parents[2] / "captures"
FRAMES = [bytes([number]) * 60 for number in range(6)]
FIRST = {"name": "one", "shows": "first", "service": "RC", "frames": [1, 2]}
MANIFEST = '[[capture]]\nfile = "x.pcap"\nshows = "x"\n'

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


def made(folder: Path, *told: object, manifest: str = MANIFEST) -> Path:
    """A pack of one golden capture, of which these cases are told."""
    golden = folder / "golden"
    golden.mkdir(parents=True, exist_ok=True)
    (golden / "manifest.toml").write_text(manifest)
    (golden / "x.json").write_text(json.dumps({"cases": told}))
    with create_capture(golden / "x.pcap", link_type=LinkType.ETHERNET) as writer:
        for number, frame in enumerate(FRAMES):
            writer.write(Record(frame, number, len(frame), LinkType.ETHERNET))
    return folder


def refusal(pack: Path) -> str:
    with pytest.raises(PackError) as caught:
        list(records(pack, list(cases(pack))))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_shipped_cases_cover_every_frame_of_every_golden_capture_once() -> None:
    every = list(cases(CAPTURES))
    assert len(every) == len({case.name for case in every}) > 0
    for capture in captures(CAPTURES, "golden"):
        own = [case for case in every if case.file == capture.file]
        numbers = [n for case in own for n in range(case.first, case.last + 1)]
        with open_capture(CAPTURES / capture.file) as reader:
            assert numbers == [number for number, _ in enumerate(reader, 1)]


def test_frames_of_cases_are_those_of_their_numbers(tmp_path: Path) -> None:
    told = [FIRST, {**FIRST, "name": "two", "frames": [4, 6]}]
    pack = made(tmp_path, *told)
    got = {case.name: [one.data for one in own] for case, own in records(pack, cases(pack))}
    assert got == {"one": FRAMES[:2], "two": FRAMES[3:]}


def test_it_says_what_a_case_comes_to_each_word_once(tmp_path: Path) -> None:
    end = {"completions": [{"status": "SUCCESS"}, {"status": "SUCCESS"}], "drops": {"LENGTH": 1}}
    pack = made(tmp_path, {**FIRST, "fault": "RKEY", "comes_to": {"server": end}})
    (case,) = cases(pack)
    assert case == Case("one", "golden/x.pcap", 1, 2, "first", "RC", ("RKEY", "SUCCESS", "LENGTH"))


@given(st.dictionaries(st.sampled_from([*FIRST, "fault", "comes_to"]), anything), anything)
@settings(max_examples=80, deadline=None)
def test_a_case_of_any_shape_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, changes: dict[str, Any], other: object
) -> None:
    pack = made(tmp_path_factory.getbasetemp() / "any", {**FIRST, **changes}, other)
    with suppress(PackError):
        assert all(isinstance(case, Case) for case in cases(pack))


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ([FIRST, FIRST], "case 'one' has frames 1 to 2 after 2"),
        ([{**FIRST, "frames": [0, 2]}], "has frames 0 to 2"),
        ([{**FIRST, "frames": [2, 1]}], "has frames 2 to 1"),
        ([{**FIRST, "frames": [1, 1 << 60]}], "has frames 1 to "),
        ([{**FIRST, "frames": [1]}], "needs a name, shows, service and two frames"),
        ([{**FIRST, "frames": [5, 7]}], "ends before frame 7, of case 'one'"),
        ([{**FIRST, "frames": [90, 91]}], "ends before frame 91, of case 'one'"),
    ],
)
def test_what_contradicts_itself_is_refused(tmp_path: Path, told: list[object], says: str) -> None:
    assert says in refusal(made(tmp_path, *told))


@pytest.mark.parametrize("file", ["../x.pcap", "/etc/passwd", "a/x.pcap", "", ".", "a\nb"])
def test_a_manifest_names_no_file_but_its_neighbours(tmp_path: Path, file: str) -> None:
    text = f"[[capture]]\nfile = {json.dumps(file)}\nshows = 'x'\n"
    assert "needs a file beside the manifest" in refusal(made(tmp_path, FIRST, manifest=text))


@pytest.mark.parametrize("text", ["", "capture = 1", "capture = [1]", "[[capture]]"])
def test_a_manifest_without_captures_is_refused(tmp_path: Path, text: str) -> None:
    assert "manifest.toml: " in refusal(made(tmp_path, FIRST, manifest=text))


@pytest.mark.parametrize("data", [b"", b"\xff", b"[" * 100_000, b"[]", b'{"cases": 7}', b"{}"])
def test_what_is_no_such_json_is_refused(tmp_path: Path, data: bytes) -> None:
    pack = made(tmp_path, FIRST)
    (pack / "golden" / "x.json").write_bytes(data)
    assert "x.json: " in refusal(pack)


def test_a_file_is_read_so_far_and_no_farther(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = made(tmp_path, FIRST)
    monkeypatch.setattr(packs, "MAX_BYTES", 40)
    assert "has more than 40 bytes" in refusal(pack)


def test_a_pipe_in_the_place_of_a_file_makes_nobody_wait(tmp_path: Path) -> None:
    pack = made(tmp_path, FIRST)
    (pack / "golden" / "x.json").unlink()
    os.mkfifo(pack / "golden" / "x.json")
    assert "x.json: is not a file" in refusal(pack)


def test_the_working_directory_comes_before_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_pack(default_folders()) == CAPTURES
    shutil.copytree(CAPTURES / "golden", tmp_path / "captures" / "golden")
    assert find_pack(default_folders()) == Path("captures")


def test_it_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(PackError, match=r"no test vectors in .*/a, nor in .*/b: "):
        find_pack((tmp_path / "a", tmp_path / "b"))
