"""TCP between two endpoints: the stream arrives, whatever the link loses or damages."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from rdmawire.fabric import Cable, Network, Rule, place_of, star
from rdmawire.gpudirect.transfer.tcp_endpoint import TcpEndpoint
from rdmawire.units import gbps, us
from rdmawire.wire.inet import TCP, Ethernet, IPv4

FAULTS = {
    "drop": Rule("drop", chance=0.05),
    "duplicate": Rule("duplicate", chance=0.05),
    "reorder": Rule("reorder", chance=0.05, behind=2, most=us(50)),
}
PORTS = (1000, 2000)
HEADERS = Ethernet.SIZE + IPv4.SIZE


class Receiver:
    """Bytes that have arrived."""

    def __init__(self) -> None:
        self.data = bytearray()

    def take(self, data: bytes, _: int) -> None:
        self.data += data


def ignore(_: int) -> None:
    """Ignore an acknowledgment."""


def pair(mtu: int = 1500) -> tuple[TcpEndpoint, TcpEndpoint, Receiver, Receiver]:
    """Return two ends of a connection, and what each receives."""
    one, other = place_of(1), place_of(2)
    here, there = Receiver(), Receiver()
    active = TcpEndpoint(
        one, other, PORTS, active=True, on_data=here.take, on_acknowledged=ignore, mtu=mtu
    )
    passive = TcpEndpoint(
        other, one, PORTS[::-1], active=False, on_data=there.take, on_acknowledged=ignore, mtu=mtu
    )
    return active, passive, here, there


@settings(max_examples=40)
@given(
    st.lists(st.integers(1, 9000), max_size=6),
    st.lists(st.integers(1, 9000), max_size=6),
    st.sampled_from([(), ("drop",), ("duplicate",), ("reorder",), ("drop", "duplicate")]),
    st.integers(0, 1000),
)
def test_both_streams_arrive(
    first: list[int], second: list[int], faults: tuple[str, ...], seed: int
) -> None:
    random = Random(seed)
    active, passive, here, there = pair()
    network = Network(seed=seed)
    star(network, {"a": active, "b": passive}, Cable(us(5), gbps(10)))
    for link in network.links:
        network.set_faults(link, *(FAULTS[name] for name in faults))
    wanted = [random.randbytes(size) for size in first], [random.randbytes(size) for size in second]
    for end, parts in zip((active, passive), wanted, strict=True):
        for part in parts:
            end.send(part)
        end.close()
    network.simulator.run()
    assert bytes(there.data) == b"".join(wanted[0])
    assert bytes(here.data) == b"".join(wanted[1])
    assert active.acknowledged == len(there.data)
    assert active.next_timer() is None
    assert passive.next_timer() is None


def established() -> tuple[TcpEndpoint, TcpEndpoint, Receiver]:
    """Return two ends after their handshake, and what the second receives."""
    active, passive, _, there = pair()
    for frame in active.transmit(0):
        passive.receive(frame, 0)
    for frame in passive.transmit(0):
        active.receive(frame, 0)
    for frame in active.transmit(0):
        passive.receive(frame, 0)
    return active, passive, there


@settings(max_examples=200)
@given(st.binary(max_size=80), st.integers(0, 79), st.integers(1, 255))
def test_damaged_frames_are_discarded(noise: bytes, at: int, change: int) -> None:
    active, passive, there = established()
    active.send(b"the data")
    (frame,) = active.transmit(0)
    damaged = bytearray(frame)
    at = HEADERS + at % (len(frame) - HEADERS)
    damaged[at] ^= change
    passive.receive(bytes(damaged), 0)
    passive.receive(noise, 0)
    passive.receive(frame[: len(noise)], 0)
    assert not there.data
    passive.receive(frame, 0)
    assert there.data == b"the data"


def test_segments_are_no_longer_than_the_mtu() -> None:
    active, _, _ = established()
    active.send(bytes(10_000))
    frames = active.transmit(0)
    assert max(map(len, frames)) == Ethernet.SIZE + 1500
    assert sum(len(frame) - HEADERS - TCP.SIZE for frame in frames) == 10_000


def test_the_window_bounds_what_is_in_flight() -> None:
    active, _, _ = established()
    active.send(bytes(8 << 20))
    sent = 0
    while frames := active.transmit(0):
        sent += sum(len(frame) - HEADERS - TCP.SIZE for frame in frames)
    assert (4 << 20) <= sent <= (4 << 20) + active.max_segment


def test_a_second_answer_to_the_syn_does_not_stop_the_timer_of_data() -> None:
    active, passive, there = pair_after_two_answers()
    active.send(b"data")
    active.transmit(0)  # lost
    for answer in passive.transmit(0):
        active.receive(answer, 0)
    due = active.next_timer()
    assert due is not None
    active.handle_timer(due)
    for frame in active.transmit(due):
        passive.receive(frame, due)
    assert there.data == b"data"


def pair_after_two_answers() -> tuple[TcpEndpoint, TcpEndpoint, Receiver]:
    """Return two ends; the second has answered a SYN twice, and one answer is on its way."""
    active, passive, _, there = pair()
    (syn,) = active.transmit(0)
    passive.receive(syn, 0)
    for frame in passive.transmit(0):
        active.receive(frame, 0)
    active.transmit(0)
    passive.receive(syn, 0)
    return active, passive, there
