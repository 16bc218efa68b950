"""Crafted packets of the verb ``inject``: their bytes, and what becomes of them."""

from pathlib import Path
from typing import Any

import pytest

from rdmawire.capture import open_capture
from rdmawire.errors import VerbsError
from rdmawire.traffic.scenario.document import ScenarioError
from rdmawire.traffic.scenario.model.packet import EXPECTED, PSN, Psn, parse_psn
from rdmawire.traffic.scenario.reader import read_scenario_text
from rdmawire.traffic.scenario.runner.play import Outcome, play
from rdmawire.verbs.enums import QPState
from rdmawire.wire import roce
from rdmawire.wire.ib import GRH, RETH, AtomicETH, ImmDt
from rdmawire.wire.opcode import Opcode

TEXT = """
name: Packets
hosts:
  client: {memory: {source: 8 KiB}}
  server: {memory: {sink: {size: 4 KiB, fill: count}}, windows: [slot]}
connections:
  a: {between: [client, server], psn: [0xfffffe, 7]}
work:
"""


def played(*steps: str, tmp_path: Path | None = None, expect: str = "") -> tuple[Outcome, Any]:
    """The outcome of some steps, and the frames with their senders' MAC addresses."""
    work = "".join(f"  - {line}\n" for line in steps)
    scenario = read_scenario_text(f"{TEXT}{work}{expect}")
    assert tmp_path is not None
    file = tmp_path / "packets.pcap"
    outcome = play(scenario, capture=file)
    with open_capture(file) as capture:
        frames = [record.data for record in capture]
    return outcome, frames


def inject(more: str) -> str:
    return f"inject: {{on: client/a, {more}}}"


def frame_of(more: str, tmp_path: Path) -> roce.Frame:
    """The frame of one injected packet."""
    _, frames = played(inject(more), tmp_path=tmp_path)
    return roce.parse(frames[0])


def test_a_packet_has_the_numbers_of_its_connection(tmp_path: Path) -> None:
    text = 'opcode: RC_RDMA_WRITE_ONLY, to: "server.sink[8:13]", payload: {text: hello}'
    outcome, frames = played(inject(text), tmp_path=tmp_path)
    (frame,) = map(roce.parse, frames)
    bth, server = frame.packet.bth, outcome.testbed.endpoints["a"][0].peer
    assert (bth.opcode, bth.psn, bth.padcnt) == (Opcode.RC_RDMA_WRITE_ONLY, 0xFFFFFE, 3)
    assert bth.destqp == server.qp.qp_num
    sink = server.machine.buffers["sink"]
    assert frame.packet.header(RETH) == RETH(sink.iova + 8, sink.key, 5)
    assert frame.packet.payload == b"hello"
    assert frame.seal() == frame
    assert sink.read(8, 6) == b"hello\x0d"


def test_it_is_from_the_flow_of_its_connection(tmp_path: Path) -> None:
    write = "write: {on: client/a, from: client.source, to: server.sink, status: REM_ACCESS_ERR}"
    crafted = inject("opcode: RC_SEND_ONLY, at: 50 us")
    _, frames = played(write, crafted, tmp_path=tmp_path)
    one, other = roce.parse(frames[0]), roce.parse(frames[-1])
    assert one.headers[0] == other.headers[0]
    assert one.headers[-1].build()[:4] == other.headers[-1].build()[:4]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("psn", "wanted"),
    [("expected", 0xFFFFFE), ("expected+3", 1), ("expected-1", 0xFFFFFD), ("0x10", 16), ("7", 7)],
)
def test_psns_are_relative_or_numbers(psn: str, wanted: int, tmp_path: Path) -> None:
    assert frame_of(f"opcode: RC_SEND_ONLY, psn: {psn}", tmp_path).packet.bth.psn == wanted


def test_an_expected_psn_follows_the_peer(tmp_path: Path) -> None:
    write = 'opcode: RC_RDMA_WRITE_ONLY, to: "server.sink[0:8]", payload: 8'
    steps = (inject(write), inject(f"{write}, at: 5 us"), inject(f"{write}, at: 10 us"))
    _, frames = played(*steps, tmp_path=tmp_path)
    assert [roce.parse(frame).packet.bth.psn for frame in frames] == [0xFFFFFE, 0xFFFFFF, 0]


def test_a_response_has_the_psn_that_a_requester_waits_for(tmp_path: Path) -> None:
    """The client's SEND is answered by a crafted ACK, before the real one."""
    steps = (
        "receive: {on: server/a}",
        "send: {on: client/a, inline: hello}",
        "inject: {on: server/a, opcode: RC_ACKNOWLEDGE, fields: {aeth.value: 31, aeth.msn: 1}}",
    )
    _, frames = played(*steps, tmp_path=tmp_path)
    acks = [roce.parse(frame).packet.bth for frame in frames]
    assert [one.psn for one in acks if one.opcode == Opcode.RC_ACKNOWLEDGE] == [0xFFFFFE] * 2


def test_psns_are_written_as_they_are_read() -> None:
    for text in PSN.examples:
        assert parse_psn(PSN.format(parse_psn(text))) == parse_psn(text)
    assert parse_psn("expected") == EXPECTED
    assert parse_psn("expected - 2") == Psn(-2, relative=True)


def test_offsets_are_added_to_address_and_key(tmp_path: Path) -> None:
    to = 'opcode: RC_FETCH_ADD, to: "server.sink[0:8]"'
    plain = frame_of(to, tmp_path).packet.header(AtomicETH)
    moved = frame_of(f"{to}, va_offset: -8, rkey_offset: 1", tmp_path).packet.header(AtomicETH)
    assert plain is not None
    assert moved == plain.replace(va=plain.va - 8, rkey=plain.rkey + 1)


def test_fields_replace_what_is_computed(tmp_path: Path) -> None:
    text = (
        'opcode: RC_RDMA_WRITE_ONLY, to: "server.sink[0:8]", payload: 8, '
        "fields: {reth.dmalen: 9, bth.pkey: 0x7fff, ip.ttl: 3, eth.src: 02:00:00:00:00:09, "
        "infiniband.bth.a: true}"
    )
    frame = frame_of(text, tmp_path)
    assert frame.packet.header(RETH).dmalen == 9  # type: ignore[union-attr]
    assert (frame.packet.bth.pkey, frame.packet.bth.ackreq) == (0x7FFF, 1)
    assert frame.headers[0].build()[6:12] == b"\2\0\0\0\0\x09"  # type: ignore[union-attr]
    assert frame.headers[1].ttl == 3  # type: ignore[union-attr]
    assert frame.seal() == frame


def test_lengths_and_checksums_may_be_wrong(tmp_path: Path) -> None:
    text = "opcode: RC_SEND_ONLY, payload: 8, fields: {udp.length: 9, ip.checksum: 1}"
    _, frames = played(inject(text), tmp_path=tmp_path)
    assert frames[0][24:26] == b"\0\1"
    assert frames[0][38:40] == b"\0\x09"
    text = "opcode: RC_SEND_ONLY, payload: 8, fields: {bth.padcnt: 2}"
    assert frame_of(text, tmp_path).packet.payload == bytes(6)


@pytest.mark.parametrize("icrc", ["stale", "bad"])
def test_the_icrc_may_be_wrong(icrc: str, tmp_path: Path) -> None:
    text = "opcode: RC_SEND_ONLY, payload: 8, fields: {bth.se: 1}"
    good, wrong = frame_of(text, tmp_path), frame_of(f"{text}, icrc: {icrc}", tmp_path)
    assert good.seal() == good
    assert wrong._replace(icrc=good.icrc) == good
    plain = frame_of("opcode: RC_SEND_ONLY, payload: 8", tmp_path)
    assert wrong.icrc == (plain.icrc if icrc == "stale" else good.icrc ^ 1)


def test_headers_and_pad_may_be_others(tmp_path: Path) -> None:
    text = "opcode: RC_SEND_ONLY, headers: [immdt, reth], payload: {hex: 01 02}, pad: 1"
    _, frames = played(inject(text), tmp_path=tmp_path)
    after = ImmDt().build() + RETH().build() + b"\1\2\0"
    assert frames[0][42 + 12 : -4] == after
    assert frames[0][43] == 1 << 4 | 0


def test_a_packet_may_be_bytes(tmp_path: Path) -> None:
    digits = "04 00 ff ff 00 00 00 11 80 ff ff fe"
    text = f'hex: "{digits}"'
    outcome, frames = played("receive: {on: server/a}", inject(text), tmp_path=tmp_path)
    frame = roce.parse(frames[0])
    assert frame.packet.build() == bytes.fromhex(digits)
    assert frame.seal() == frame
    assert roce.parse(frames[1]).packet.bth.opcode == Opcode.RC_ACKNOWLEDGE
    changed = frame_of(f"{text}, fields: {{bth.psn: 3}}", tmp_path)
    assert changed.packet.bth.psn == 3
    assert outcome.passed


def test_the_senders_queue_pair_does_not_change(tmp_path: Path) -> None:
    steps = (
        inject("opcode: RC_SEND_ONLY, fields: {bth.ackreq: 1}"),
        inject("opcode: RC_RDMA_READ_REQUEST, to: server.sink, at: 10 us"),
        inject("opcode: RC_SEND_MIDDLE, payload: 3, at: 20 us"),
    )
    outcome, frames = played(*steps, tmp_path=tmp_path)
    client = outcome.testbed.endpoints["a"][0]
    assert len(frames) == 3 + 1 + 4 + 1  # an RNR NAK, a READ's responses, a NAK
    assert client.qp.state is QPState.RTS
    assert client.qp.sq.next_psn == 0xFFFFFE
    assert client.peer.qp.state is QPState.ERR
    assert outcome.counters["client.dropped_stale"] == 6


def test_each_queue_pair_of_an_end_sends_one(tmp_path: Path) -> None:
    text = TEXT.replace("psn: [0xfffffe, 7]", "count: 3")
    for end, count in (("client/a", 3), ("client/a#2", 1)):
        scenario = read_scenario_text(f"{text}  - inject: {{on: {end}, opcode: CNP}}\n")
        assert play(scenario).counters["client.cnps"] == count


def test_faults_and_counters_apply_to_it(tmp_path: Path) -> None:
    lost = 'links: {client-server: {faults: [drop: {where: {bth.opcode: CNP}}]}}\nname: "x"'
    text = f"{TEXT.replace('name: Packets', lost)}  - {inject('opcode: CNP')}\n"
    outcome = play(read_scenario_text(text))
    assert (outcome.frames, outcome.summary.lost, outcome.counters["client.frames"]) == (1, 1, 1)


def test_a_link_with_a_rate_takes_one_after_the_other(tmp_path: Path) -> None:
    rate = 'links: {client-server: {rate: 10 Gbit/s}}\nname: "x"'
    steps = "".join(f"  - {inject('opcode: CNP')}\n" for _ in range(5))
    outcome = play(read_scenario_text(f"{TEXT.replace('name: Packets', rate)}{steps}"))
    assert outcome.counters["client.frames"] == 5
    assert outcome.passed


def test_a_window_has_the_key_of_its_last_bind(tmp_path: Path) -> None:
    steps = (
        'bind_mw: {on: server/a, what: server.slot, to: "server.sink[256:512]"}',
        inject(
            "opcode: RC_RDMA_WRITE_ONLY, to: server.slot, payload: {size: 256, hex: aa}, at: 1 us"
        ),
        inject("opcode: RC_SEND_ONLY_WITH_INVALIDATE, to: server.slot, at: 9 us"),
    )
    expect = 'expect: {memory: {"server.sink[256:512]": {hex: aa}}}\n'
    outcome, frames = played(*steps, tmp_path=tmp_path, expect=expect)
    assert outcome.passed
    slot = outcome.testbed.machines["server"].buffers["slot"]
    assert frames[1][42 + 12 : 42 + 16] == slot.key.to_bytes(4, "big")


def test_a_datagram_has_the_qkey(tmp_path: Path) -> None:
    text = TEXT.replace("psn: [0xfffffe, 7]", "type: UD")
    steps = "receive: {on: server/a, into: server.sink}", inject("opcode: UD_SEND_ONLY")
    outcome = play(read_scenario_text(text + "".join(f"  - {line}\n" for line in steps)))
    assert outcome.counters["server.dropped"] == 0
    assert outcome.counters["server.port_rcv_packets"] == 1


def test_an_address_of_ipv6_gives_ipv6_headers(tmp_path: Path) -> None:
    text = TEXT.replace("client: {", "client: {address: fd00::1, ")
    step = inject("opcode: CNP, fields: {ipv6.hop_limit: 3}")
    file = tmp_path / "ipv6.pcap"
    play(read_scenario_text(f"{text}  - {step}\n"), capture=file)
    with open_capture(file) as capture:
        (frame,) = (roce.parse(record.data) for record in capture)
    assert frame.headers[1].hop_limit == 3  # type: ignore[union-attr]
    with pytest.raises(ScenarioError, match="expected a field of its headers: eth, ipv6, udp, bth"):
        read_scenario_text(f"{text}  - {step.replace('ipv6.hop_limit', 'ip.ttl')}\n")


def test_a_packet_that_no_frame_can_hold_is_refused(tmp_path: Path) -> None:
    step = read_scenario_text(f"{TEXT}  - {inject('opcode: CNP')}\n").steps[0]
    values = {**step.values, "fields": {"bth.psn": 1 << 30}}
    scenario = read_scenario_text(f"{TEXT}  - {inject('opcode: CNP')}\n").model_copy(
        update={"steps": (step.model_copy(update={"values": values}),)}
    )
    (failure,) = play(scenario).failures
    assert "crafted packet" in failure.found
    assert VerbsError.__name__ not in failure.found


def test_frames_are_expected_by_their_payload(tmp_path: Path) -> None:
    text = 'opcode: RC_RDMA_WRITE_ONLY, to: "server.sink[0:5]", payload: {text: hello}'
    where = "where: {bth.opcode: RC_RDMA_WRITE_ONLY}"
    expect = "expect:\n  packets:\n"
    for payload, count in (("{text: hello}", 1), ('{hex: "68656c6c6f"}', 1), ("{text: hell}", 0)):
        expect += f"    - {{{where}, payload: {payload}, count: {count}}}\n"
    outcome, _ = played(inject(text), tmp_path=tmp_path, expect=expect)
    assert outcome.passed


def test_a_payload_that_differs_is_shown(tmp_path: Path) -> None:
    text = 'opcode: RC_RDMA_WRITE_ONLY, to: "server.sink[0:2]", payload: {hex: 0102}'
    where = "where: {bth.opcode: RC_RDMA_WRITE_ONLY}"
    expect = f"expect: {{packets: [{{{where}, payload: {{hex: 0103}}, count: 1}}]}}\n"
    outcome, _ = played(inject(text), tmp_path=tmp_path, expect=expect)
    (failure,) = outcome.failures
    assert failure.what == "packets with bth.opcode RC_RDMA_WRITE_ONLY and payload 01 03"
    assert (failure.expected, failure.found) == ("1", "0")
    assert failure.nearest == "frame 1, payload 01 02"


def test_a_random_payload_is_not_expected() -> None:
    payload = "payload: {size: 4, fill: random}"
    expect = f"expect: {{packets: [{{where: {{bth.opcode: CNP}}, {payload}, count: 1}}]}}\n"
    with pytest.raises(ScenarioError, match="found random bytes; expected"):
        read_scenario_text(f"{TEXT}  - {inject('opcode: CNP')}\n{expect}")


XRC = """
name: Shared receive queues
hosts:
  client: {}
  server:
    shared receives: {pool: {xrc: true}, other: {xrc: true}, far: {xrc: true, other domain: true}}
connections:
  a: {between: [client, server], type: XRC, shared receives: {server: pool}}
  b: {between: [client, server], type: XRC, shared receives: {server: other}}
work:
  - receive: {on: server/a}
  - receive: {on: server/b}
  - inject: {on: client/a, opcode: XRC_SEND_ONLY, at: 1 us}
  - inject: {on: client/a, opcode: XRC_SEND_ONLY, queue: other, at: 5 us}
  - inject: {on: client/a, opcode: XRC_SEND_ONLY, queue: far, fields: {bth.ackreq: 1}, at: 9 us}
expect:
  packets: [{where: {aeth.ack: NAK, aeth.value: INVALID_REQUEST}, count: 1, sent by: server}]
  states: {server/a: ERR}
"""


def test_an_xrc_packet_names_a_queue() -> None:
    outcome = play(read_scenario_text(XRC))
    assert [failure.text("it") for failure in outcome.failures] == []


def test_a_grh_on_ethernet_carries_a_connection_of_rocev1(tmp_path: Path) -> None:
    text = TEXT.replace("psn: [", "gid type: ROCE_V1, psn: [")
    text += "  - inject: {on: client/a, opcode: RC_SEND_ONLY, fields: {grh.hoplmt: 9}}\n"
    text += "  - write: {on: client/a, from: 'client.source[0:8]', to: server.sink, at: 1 ms}\n"
    file = tmp_path / "packets.pcap"
    assert play(read_scenario_text(text), capture=file).passed
    with open_capture(file) as capture:
        frames = [roce.parse(record.data) for record in capture]
    headers = [frame.headers[1] for frame in frames]
    assert len(headers) >= 3
    assert all(isinstance(header, GRH) for header in headers)
    assert [getattr(header, "hoplmt", 0) for header in headers][:2] == [9, 64]
