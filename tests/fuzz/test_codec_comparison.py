"""The codec against Construct and Scapy: a planted difference is found, and there is no other."""

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rdmawire.errors import FuzzError
from rdmawire.fuzz import codec_comparison
from rdmawire.fuzz.campaign import Campaign
from rdmawire.fuzz.codec_comparison import (
    ALLOWED,
    CODEC,
    LIBRARIES,
    CodecComparison,
    Read,
    view_of,
)
from rdmawire.fuzz.finding import replay
from rdmawire.fuzz.frame_mutation import SeedFrame, mutants_from_json
from rdmawire.fuzz.fuzzer import make_fuzzer
from rdmawire.fuzz.seed_corpus import corpus_of
from rdmawire.layers.construct import RoCEFrame
from rdmawire.wire.header import Header
from tests.fuzz.parameters import slow

FRAMES = list(corpus_of().frames())
SPEC = {"kind": "codecs"}


class ViewWithMistake:
    """Construct's view, but for the values of one row and what it refuses."""

    def __init__(self, row: str = "", message: Callable[[bytes], Read] | None = None) -> None:
        self._view = view_of("construct")
        self._row = row
        self.REFUSAL: type[Exception] = self._view.REFUSAL
        self.MESSAGES: Mapping[str, Callable[[bytes], Read]] = {
            **self._view.MESSAGES,
            **({"packet": message} if message else {}),
        }

    def parse_header(self, table: type[Header], data: bytes) -> Mapping[str, Any]:
        values = dict(self._view.parse_header(table, data))
        if self._row in values:
            values[self._row] &= 0xFF
        return values

    def build_header(self, table: type[Header], values: Mapping[str, Any]) -> bytes:
        return self._view.build_header(table, values)


@pytest.mark.parametrize("runs", [150, *slow([300])])
def test_the_libraries_read_mutants_as_the_codec_does(runs: int) -> None:
    assert Campaign(SPEC, 1, runs=runs).run() == []


def test_every_message_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()

    def noted(name: str, read: Callable[[bytes], Read]) -> Callable[[bytes], Read]:
        def reading(data: bytes) -> Read:
            seen.add(name)
            return read(data)

        return reading

    for name, read in list(CODEC.items()):
        monkeypatch.setitem(CODEC, name, noted(name, read))
    comparison = CodecComparison({name: view_of(name) for name in LIBRARIES})
    assert all(comparison.judge([frame]) is None for frame in FRAMES[::7])
    assert seen == CODEC.keys() == view_of("construct").MESSAGES.keys()


def test_a_row_that_is_read_wrongly_is_found() -> None:
    comparison = CodecComparison({"construct": ViewWithMistake("psn")})
    found = next(filter(None, comparison.judge_all([[frame] for frame in FRAMES])))
    assert found.signature == "construct | BTH"
    assert found.expected.startswith("BTH: {")
    assert found.expected.endswith(" (the codec of rdmawire)")
    assert found.happened.endswith(" (construct)")
    assert found.expected.partition(" (")[0] != found.happened.partition(" (")[0]


def test_a_message_that_is_not_refused_is_found() -> None:
    view = ViewWithMistake(message=lambda data: ([], data))
    found = CodecComparison({"construct": view}).judge([_with_opcode(0x1F)])
    assert found is not None
    assert found.signature == "construct | packet accepted"
    assert found.expected.startswith("packet: refused: ")
    assert found.happened == "packet: accepted (construct)"


def test_an_exception_that_is_no_refusal_is_found() -> None:
    def fails(_: bytes) -> Read:
        raise IndexError("planted")

    found = CodecComparison({"construct": ViewWithMistake(message=fails)}).judge(
        [_with_opcode(0x1F)]
    )
    assert found is not None
    assert found.happened == "packet: IndexError: planted (construct)"


def _with_opcode(opcode: int) -> SeedFrame:
    """A RoCE frame with another opcode."""
    from rdmawire.fuzz.frame_map import map_frame

    for frame in FRAMES:
        bth = map_frame(frame.data, frame.link_type).find("bth")
        if bth is not None and frame.link_type == 1:
            data = bytearray(frame.data)
            data[bth.offset] = opcode
            return frame._replace(data=bytes(data))
    raise AssertionError


def test_a_finding_is_minimised_and_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = ViewWithMistake("rkey")
    monkeypatch.setattr("rdmawire.fuzz.parser_fuzzer.view_of", lambda _: view)
    campaign = Campaign({**SPEC, "libraries": "construct"}, 1, tmp_path, runs=400)
    found = campaign.run()
    finding = next(one for one in found if one.violation.signature == "construct | RETH")
    (mutant,) = mutants_from_json(finding.case)
    assert len(mutant.mutations) <= 1
    assert replay(finding) == finding.violation
    assert (tmp_path / finding.name / "packets.pcapng").exists()


@pytest.mark.parametrize("row", ALLOWED, ids=lambda row: f"{row.library} {row.message}")
def test_every_allowed_difference_is_one(
    row: codec_comparison.Allowed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec_comparison, "ALLOWED", ())
    spec = {**SPEC, "libraries": row.library}
    first = 450 if row.message == "frame" else 0
    found = make_fuzzer(spec).batch(1, first, 100).found
    assert f"{row.library} | {row.message} accepted" in {one.violation.signature for one in found}


def test_libraries_that_are_not_installed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = importlib.import_module

    def without_scapy(name: str, package: str | None = None) -> Any:
        if ".scapy" in name:
            raise ImportError('needs Scapy: pip install "rdmawire[scapy]"')
        return real(name, package)

    monkeypatch.setattr(codec_comparison, "import_module", without_scapy)
    make_fuzzer(SPEC)
    assert [record.message for record in caplog.records] == [
        'needs Scapy: pip install "rdmawire[scapy]"'
    ]
    with pytest.raises(FuzzError, match=r"rdmawire\[scapy\]"):
        make_fuzzer({**SPEC, "libraries": "scapy"})
    with pytest.raises(FuzzError, match="the nearest is scapy"):
        make_fuzzer({**SPEC, "libraries": "scapi"})


# Found by this target.


def _frame(**network: Any) -> bytes:
    transport = {"bth": {"opcode": "RC_SEND_ONLY"}, "payload": bytes(8)}
    built: bytes = RoCEFrame.build(
        {"ethernet": {"type": "IPV4"}, "network": network, "transport": transport}
    )
    return built


def test_construct_ends_the_transport_packet_with_the_ip_packet() -> None:
    data = bytearray(_frame())
    data[39] += 16  # udp.length
    assert RoCEFrame.parse(bytes(data)).transport.payload == bytes(8)
    data = bytearray(_frame())
    data[17] -= 4  # ip.total_length
    assert RoCEFrame.parse(bytes(data)).transport.payload == bytes(4)


def test_construct_refuses_a_cut_ip_packet() -> None:
    from construct import ConstructError

    data = bytearray(_frame())
    data[17] += 1
    with pytest.raises(ConstructError, match="bytes announced, fewer are there"):
        RoCEFrame.parse(bytes(data))


def test_construct_refuses_a_payload_that_the_opcode_does_not_allow() -> None:
    from construct import ConstructError

    from rdmawire.layers.construct import TransportPacket

    whole = TransportPacket.build({"bth": {"opcode": "RC_SEND_ONLY"}, "payload": bytes(8)})
    with pytest.raises(ConstructError, match="no multiple of four"):
        TransportPacket.parse(whole[:-1])
