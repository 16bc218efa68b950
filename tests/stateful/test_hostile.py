"""``receive`` takes any bytes: nothing is raised, and no memory is touched that is not given."""

from hypothesis import given
from hypothesis import strategies as st

from rdmawire.fabric.host import Host
from rdmawire.verbs.enums import QPState, WCOpcode
from tests.effort import searching
from tests.stateful.hostile import SECRET, Attacker, Victim
from tests.stateful.strategies import PSNS

LEAK = SECRET[:6]


@searching(40)
@given(st.data(), PSNS, st.integers(1, 25))
def test_frames_of_a_hostile_peer_do_no_harm(data: st.DataObject, psn: int, frames: int) -> None:
    peer = Host(1)
    victim = Victim(peer, psn)
    attacker = Attacker(peer, victim, data.draw)
    now = 0
    for _ in range(frames):
        frame = attacker.frame()
        victim.nic.receive(frame, now)
        _listen(victim, now)
        if data.draw(st.integers(0, 7)) == 0:
            now = victim.nic.next_timer() or now
            victim.nic.handle_timer(now)
    _listen(victim, now)
    victim.check_memory()
    _check_completions(victim)


def _listen(victim: Victim, now: int) -> None:
    """Whatever it says holds nothing that was not to be read."""
    for _ in range(100):
        frames = victim.nic.transmit(now)
        assert not any(LEAK in frame for frame in frames)
        if not frames:
            return
    raise AssertionError("it never stops talking")


def _check_completions(victim: Victim) -> None:
    """Each piece of work completes once at most, and in order."""
    queues: dict[tuple[int, bool], list[int]] = {}
    for done in victim.cq.poll(1000):
        queue = (done.qp_num, bool(done.opcode & WCOpcode.RECV))
        queues.setdefault(queue, []).append(done.wr_id)
    for numbers in queues.values():
        assert numbers == sorted(set(numbers))
    for qp in victim.qps:
        assert qp.state in (QPState.RTS, QPState.ERR)


@searching(30)
@given(st.lists(st.binary(max_size=300), max_size=20))
def test_random_bytes_are_counted_and_dropped(frames: list[bytes]) -> None:
    victim = Victim(Host(1), 0)
    _listen(victim, 0)
    for frame in frames:
        victim.nic.receive(frame, 0)
    assert victim.nic.drops.total() == len(frames)
    assert victim.nic.transmit(0) == []
    victim.writable.clear()
    victim.check_memory()
