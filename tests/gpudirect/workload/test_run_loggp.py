"""Messages with LogGP's constants, against times that are worked out by hand.

LogGP (Alexandrov and others, SPAA 1995): a message of s bytes takes o + (s - 1) G + L + o. Here L
is the time of an empty message, and G the time of a byte at the rate that full packets leave for
data. A switch forwards a packet when it has all of it, so the last one takes its time twice.
"""

import pytest

from rdmawire.fabric.link import wire_time
from rdmawire.gpudirect.message_time import EFFICIENCY, FIRST_HEADERS, HEADERS, MTU
from rdmawire.gpudirect.workload import WorkloadError, WorkloadReport, WorkloadRun, WorkloadSpec
from tests.gpudirect.workload.schedules import goal

RATE = 50_000_000_000
CABLE = 1500
OVERHEAD = 8000
DMA = 345
"""Times (ns) of an adapter's read and write of its GPU, beside one PCIe switch."""
LATENCY = DMA + 2 * CABLE + 2 * wire_time(HEADERS + FIRST_HEADERS, RATE)
BYTE = 8e9 / RATE / EFFICIENCY
PACKET = MTU * BYTE
READ = 150
"""Time (ns) of an adapter's read of a packet, less than this, which is on the wire after it."""
SPEC = WorkloadSpec(rate=RATE, latency=CABLE, eager=1 << 20, overhead=OVERHEAD, buffered=True)
MODES = [SPEC, SPEC._replace(flows=True)]


def run(text: str, spec: WorkloadSpec) -> WorkloadReport:
    """The report of a schedule."""
    return WorkloadRun(goal(text), spec).run()


def relay(ranks: int, size: int) -> str:
    """Each rank sends to the next one what it has received."""
    text = f"num_ranks {ranks}\nrank 0 {{\n send {size}b to 1\n}}\n"
    for rank in range(1, ranks):
        text += f"rank {rank} {{\n taken: recv {size}b from {rank - 1}\n"
        if rank + 1 < ranks:
            text += f"sent: send {size}b to {rank + 1}\n sent requires taken\n"
        text += "}\n"
    return text


def tree(levels: int) -> str:
    """A binomial tree: in each round, each rank that has the message sends it."""
    ranks = 1 << levels
    text = f"num_ranks {ranks}\n"
    for rank in range(ranks):
        text += f"rank {rank} {{\n"
        first = rank.bit_length()
        if rank:
            text += f"taken: recv 1b from {rank - (1 << first - 1)}\n"
        for level in range(first, levels):
            text += f"sent{level}: send 1b to {rank + (1 << level)}\n"
            text += f"sent{level} requires taken\n" if rank else ""
        text += "}\n"
    return text


@pytest.mark.parametrize("spec", MODES)
@pytest.mark.parametrize("size", [1, 1000, 4096, 65536, 100_000])
def test_a_relay_takes_for_each_hop_what_loggp_says(spec: WorkloadSpec, size: int) -> None:
    hop = OVERHEAD + LATENCY + (size - 1) * BYTE + OVERHEAD
    found = run(relay(4, size), spec).duration
    last = min(size * BYTE, PACKET)
    assert 3 * hop - 10 <= found <= 3 * (hop + last + READ)


@pytest.mark.parametrize("spec", MODES)
def test_a_tree_takes_a_hop_for_each_level(spec: WorkloadSpec) -> None:
    hop = OVERHEAD + LATENCY + OVERHEAD
    assert run(tree(4), spec).duration == pytest.approx(4 * hop, rel=0.002)


@pytest.mark.parametrize("spec", MODES)
def test_an_overhead_is_added_at_either_end_of_each_message(spec: WorkloadSpec) -> None:
    without = run(relay(3, 1000), spec._replace(overhead=0)).duration
    assert run(relay(3, 1000), spec).duration == without + 4 * OVERHEAD


FAN = """num_ranks 4
rank 0 {
  first: send 8b to 1
  second: send 8b to 2
  third: send 8b to 3
  second requires first
  third requires second
}
rank 1 {
  recv 8b from 0
}
rank 2 {
  recv 8b from 0
}
rank 3 {
  recv 8b from 0
}
"""


@pytest.mark.parametrize("spec", MODES)
def test_buffered_sends_do_not_wait_for_acknowledgments(spec: WorkloadSpec) -> None:
    report = run(FAN, spec)
    assert report.ranks[0] == 3 * OVERHEAD
    for rank in (1, 2, 3):
        assert report.ranks[rank] == pytest.approx((rank + 1) * OVERHEAD + LATENCY, abs=10)
    waits = run(FAN, spec._replace(buffered=False))
    assert waits.ranks[0] > 3 * (OVERHEAD + LATENCY)
    long = run(FAN, spec._replace(eager=0))
    assert long.ranks[0] > 3 * (OVERHEAD + 2 * LATENCY)


@pytest.mark.parametrize("size", [8, 65536])
@pytest.mark.parametrize("spec", MODES)
def test_messages_of_an_adapter_have_a_gap(spec: WorkloadSpec, size: int) -> None:
    fan = FAN.replace("8b", f"{size}b")
    ranks = run(fan, spec._replace(overhead=0, gap=5000)).ranks
    each = 5000 + (size - 1) * BYTE + wire_time(HEADERS + FIRST_HEADERS, RATE)
    steps = [ranks[2] - ranks[1], ranks[3] - ranks[2]]
    assert steps == pytest.approx([each, each], abs=25)
    within = run(FAN, spec._replace(gap=OVERHEAD - 100)).ranks
    assert within == run(FAN, spec).ranks


GATHER = """num_ranks 4
rank 0 {
  recv 8b from 1
  recv 8b from 2
  recv 8b from 3
}
rank 1 {
  send 8b to 0
}
rank 2 {
  send 8b to 0
}
rank 3 {
  send 8b to 0
}
"""


@pytest.mark.parametrize("spec", MODES)
def test_receives_follow_one_another(spec: WorkloadSpec) -> None:
    one = OVERHEAD + LATENCY
    assert run(GATHER, spec).duration == pytest.approx(one + 3 * OVERHEAD, abs=200)
    found = run(GATHER, spec._replace(gap=20_000)).duration
    assert found == pytest.approx(one + 2 * 20_000 + OVERHEAD, abs=200)


BUSY = """num_ranks 2
rank 0 {
  send 8b to 1
}
rank 1 {
  calc 100000 cpu 0
  recv 8b from 0 cpu 0
}
"""


@pytest.mark.parametrize("spec", MODES)
def test_a_receive_waits_for_its_processor(spec: WorkloadSpec) -> None:
    assert run(BUSY, spec).ranks[1] == 100_000 + OVERHEAD
    other = BUSY.replace("recv 8b from 0 cpu 0", "recv 8b from 0 cpu 1\n  calc 1 cpu 1")
    assert run(other, spec).ranks[1] == 100_000
    assert run(BUSY, spec._replace(overhead=0)).ranks[1] == 100_000


@pytest.mark.parametrize("spec", MODES)
def test_computations_and_sends_take_turns_on_a_processor(spec: WorkloadSpec) -> None:
    text = "num_ranks 2\nrank 0 {\n calc 5000\n send 8b to 1\n calc 700\n}\n"
    text += "rank 1 {\n recv 8b from 0\n}\n"
    report = run(text, spec)
    assert report.ranks[0] == 5000 + OVERHEAD + 700
    assert report.ranks[1] == pytest.approx(5000 + 2 * OVERHEAD + LATENCY, abs=10)


@pytest.mark.parametrize("spec", [SPEC._replace(overhead=-1), SPEC._replace(gap=-1)])
def test_times_below_zero_are_refused(spec: WorkloadSpec) -> None:
    with pytest.raises(WorkloadError, match="a time or a size below 0"):
        WorkloadRun(goal(FAN), spec)
