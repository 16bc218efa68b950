"""Display filters: on every capture, each passes the frames that tshark passes.

All filters are compared in one run of tshark: each is a tap that notes its frames.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from rdmawire.capture import create_capture, open_capture
from rdmawire.capture.record import Record
from rdmawire.dissect.dissection import Dissection
from rdmawire.dissect.dissector import Dissector
from rdmawire.filter import Filter, FilterError
from rdmawire.filter.names import PROTOCOLS
from rdmawire.fuzz.tshark_differences import KNOWN_DIFFERENCES
from rdmawire.fuzz.tshark_process import PREFERENCES
from tests.captures import CAPTURES, captures_at_once
from tests.filter.samples import FILTERS
from tests.interop.comparison import merged

pytestmark = pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")

_TAPS = """
local taps = {}
for filter in io.lines(os.getenv("FILTERS")) do
  local taken, tap = pcall(Listener.new, "frame", filter)
  local numbers = {}
  taps[#taps + 1] = { taken, numbers }
  if taken then
    function tap.packet(pinfo) numbers[#numbers + 1] = pinfo.number end
  end
end
local last = Listener.new("frame")
function last.draw()
  for _, tap in ipairs(taps) do
    print(tap[1] and "frames " .. table.concat(tap[2], " ") or "refused")
  end
end
"""

_OWN = {
    # A tap counts the InfiniBand layer of a raw packet twice.
    ("raw_packets_erf.pcap", "infiniband.bth"),
}
"""Captures and names that tshark sees otherwise in filters."""


def theirs(path: Path, filters: list[str], folder: Path) -> dict[str, set[int] | None]:
    """The frames that each filter lets pass; ``None`` for a filter that is refused."""
    (folder / "filters").write_text("\n".join(filters) + "\n")
    (folder / "taps.lua").write_text(_TAPS)
    settings = [word for preference in PREFERENCES for word in ("-o", preference)]
    done = subprocess.run(
        ["tshark", "-q", "-X", f"lua_script:{folder / 'taps.lua'}", "-r", str(path), *settings],
        env={**os.environ, "FILTERS": str(folder / "filters"), "TZ": "UTC"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
        text=True,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith(("frames", "refused"))]
    return {
        text: None if line == "refused" else {int(number) for number in line.split()[1:]}
        for text, line in zip(filters, lines, strict=True)
    }


@cache
def compiled() -> dict[str, Filter]:
    return {text: Filter(text) for text in FILTERS}


def dissected(path: Path) -> list[Dissection]:
    with open_capture(path) as capture:
        return list(Dissector().capture(capture))


def is_known(names: tuple[str, ...], frame: Dissection, capture: str) -> bool:
    """Whether tshark is known to see one of these fields, or protocols, wrong in that frame."""
    stand_ins = [f"{name}.*" if name in (*PROTOCOLS, "data") else name for name in names]
    return any(
        (capture, name) in _OWN or row.covers(name, frame, capture)
        for name in stand_ins
        for row in KNOWN_DIFFERENCES
    )


def unexplained(path: Path, names: list[str], folder: Path) -> Iterator[str]:
    """Yield the differences that are not known; ``names`` are the captures of the frames."""
    frames = dissected(path)
    for text, their in theirs(path, FILTERS, folder).items():
        assert their is not None, f"tshark refuses {text}"
        wanted = compiled()[text]
        ours = {frame.number for frame in frames if wanted(frame)}
        for number in sorted(ours ^ their):
            capture = names[number - 1]
            if not is_known(wanted.names, frames[number - 1], capture):
                side = "here" if number in ours else "in tshark"
                yield f"{text}: {capture}: frame {number} passes {side}"


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")


@captures_at_once()
def test_every_filter_passes_the_frames_that_tshark_passes(
    paths: list[Path], tmp_path: Path
) -> None:
    for path, names in merged(paths, tmp_path):
        found = list(unexplained(path, names, tmp_path))
        assert not found, "\n".join(found[:20])


def test_the_table_finds_something_with_nearly_every_filter() -> None:
    paths = [CAPTURES / "linux" / name for name in ("rxe61_rnr.pcap", "siw61_vt_all.pcap")]
    frames = [frame for path in paths for frame in dissected(path)]
    passing = [text for text, wanted in compiled().items() if any(map(wanted, frames))]
    assert len(passing) > 0.6 * len(FILTERS) > 100


_PATTERNS = r"""
\bRT\b \BT [[:alpha:]] [[:^alpha:]] [[:upper:]] [[:space:]] [[:punct:]] [[:word:]] [[:blank:]]
[[:cntrl:]] [[:print:]] [[:xdigit:]] [[:alnum:]_-] [^[:graph:]] \d \D \w \W \s \S \h \H \v \V \N \R
[\s] [^\s] [\S\d] [\h] [\H] [\v] [\V] [^\W] [^\D\d] \e \a \f \n \r \t \0 \012 \x \xg \x4 \x4g \x{4}
\x4{2} \xe9 \x{e9} [\x4-\x7] [\xc0-\xdf] [^\xe0-\xef] [A-\xc5] é [é] \cA [\cA] \c[ \o{101} [\b] a\Z
a\z a$ ^a \Aa \Gb (?m)a$ (?m)^a (?s)a.b a.b (?-i)rt (?-i:R)t (?si-m)A.B (?U)a+ (?)a \Q$\E \Qa a\E
\Q\s\E\s (?#remark)a (?<n>a) (?P<n>a) (?:a|b)+$ a{,3} a{3 a{2}? a{3,} []a] [^]a] [a-] [a-c-e]
[\\d-f] [$^.] a| () \- \_ \pL \PL \C
"""
SUBJECTS = [
    *(bytes([byte]) for byte in range(256)),
    *(b"a\n", b"a\n\n", b"\na", b"\r\n", b"RT", b"rt", b"x rt y", b"art", b"aaa", b"aaab", b"a\nb"),
    *(b"ab", b"A1_", b"$", b"a$", b"a{,3}", b"a{3", b"\x04g", b"\x00g", b"\xc3\xa9", b"\\s "),
]


def test_every_pattern_finds_what_tshark_finds(tmp_path: Path) -> None:
    path = tmp_path / "subjects.pcap"
    ethernet = bytes.fromhex("020000000001 020000000002 88b5")
    with create_capture(path) as capture:
        for number, subject in enumerate(SUBJECTS):
            capture.write(Record(ethernet + subject, number, 14 + len(subject), 1))
    filters = [f'frame[14:] matches r"{pattern}"' for pattern in _PATTERNS.split()]
    frames = dissected(path)
    for text, their in theirs(path, filters, tmp_path).items():
        wanted = Filter(text)
        assert {frame.number for frame in frames if wanted(frame)} == their, text


REFUSED = [
    *("ip and", "and ip", "ip ip", "(ip", "ip)", "ip ==", "== ip", "1", '"a"', "4 == 4"),
    *("ip AND tcp", "infiniband.bth.opcode == 300", "infiniband.bth.opcode == RC_NOTHING"),
    *("ip.src == 10.77.0.0/33", "ip.src == 1.2.3.999", "ip.src in {}", "ip.src in {10.77.0.1,}"),
    *("eth.src == 52:54:00", "frame.len > 99999999999", "frame.len > 1e2", 'frame.len == "62"'),
    *("udp.dstport >= udp.srcport-1", "count(ip.addr)", "len(ip, udp) == 1", "nofunc(ip) == 1"),
    *("ip.src contains 4d", 'ip.src matches "10"', "frame matches RT", 'frame matches "["'),
    *('frame contains "\\."', "infiniband.bth[]", "infiniband.bth[5-2]", "infiniband.bth[0:0]"),
    *("infiniband.bth.psn[0]", "infiniband.bth[0] == infiniband.bth.opcode", "ip.src == eth.src"),
    *("infiniband.bth.a & 1", "infiniband.bth[0] + 1 == 2", "frame.time_delta > .01"),
    *("frame.time > 1795227398", 'frame.time > "2026-11-21T02"', "frame.time_relative * 2 < 1"),
    *("any ip.addr", "all frame.len & 1", "ip.ttl == 68-4", "ip.src[1,] == 4d", "eth.type == ip"),
    *('frame matches "[:alpha:]"', r'frame matches r"[\d-f]"', 'frame matches "[[:no:]]"'),
    *('frame matches "[b-a]"', 'frame matches "a**"', r'frame matches r"\y"', 'frame ~ "a{3,2}"'),
]  # fmt: skip


def test_what_tshark_refuses_is_refused(tmp_path: Path) -> None:
    path = CAPTURES / "linux" / "rxe61_rnr.pcap"
    assert set(theirs(path, REFUSED, tmp_path).values()) == {None}
    for text in REFUSED:
        with pytest.raises(FilterError):
            Filter(text)
