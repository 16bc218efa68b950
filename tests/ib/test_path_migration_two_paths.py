"""Connections with two paths that fail and heal: a migration restores all retries. IBA 17.2.8."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from rdmawire.fabric.frame import Envelope
from rdmawire.fabric.link import Arrival, Link
from rdmawire.fabric.pair import ATTRIBUTES, End, Pair
from rdmawire.verbs.ah import mapped
from rdmawire.verbs.enums import MigrationState, QPState, WCStatus
from rdmawire.verbs.qp_attr import QPAttributes, QPAttrMask
from rdmawire.wire import roce
from rdmawire.wire.inet import IPv4

PKEY = 0x8123
EXPONENT = 4
TIMEOUT = 4096 << EXPONENT
"""The ACK timeout of both paths, in ns."""
RETRIES = 7


class Paths(Link):
    """Two paths between hosts 1 and 2, of which each direction can be cut."""

    def __init__(self) -> None:
        super().__init__()
        self.cut: set[tuple[int, int]] = set()
        """Path, 0 or 1, and the number of the host that sends."""

    def carry(self, frame: Envelope, now: int) -> list[Arrival]:
        (ip,) = (each for each in roce.parse(frame.data).headers if isinstance(each, IPv4))
        return [] if (ip.src[1], ip.src[3]) in self.cut else super().carry(frame, now)

    def cut_path(self, path: int) -> None:
        self.cut |= {(path, 1), (path, 2)}


class TwoPaths:
    """A pair, and the path that each end sends on."""

    def __init__(self, alternate_pkey: int = 0) -> None:
        self.link = Paths()
        limits = ATTRIBUTES._replace(timeout=EXPONENT, retry_cnt=RETRIES)
        self.pair = Pair(link=self.link, attributes=limits)
        self.ends = (self.pair.client, self.pair.server)
        self.alternate_pkey = alternate_pkey
        for number, end in enumerate(self.ends, 1):
            end.nic.gids = (*end.nic.gids, self.gid(1, number))
            end.nic.pkeys = (0xFFFF, PKEY)
        self.primary = 0
        self.rearm()

    @staticmethod
    def gid(path: int, number: int) -> bytes:
        return mapped(bytes((10, path, 0, number)))

    def rearm(self) -> None:
        """Load the path that is not in use as the alternate one of both, and arm them."""
        other = 1 - self.primary
        for number, end in enumerate(self.ends, 1):
            path = end.path_to(end.peer)
            path = path._replace(sgid=self.gid(other, number), dgid=self.gid(other, 3 - number))
            wanted = QPAttributes(
                alt_ah=path,
                alt_timeout=EXPONENT,
                alt_pkey_index=self.alternate_pkey,
                path_mig_state=MigrationState.REARM,
            )
            mask = QPAttrMask.ALT_PATH | QPAttrMask.PATH_MIG_STATE
            end.nic.modify_qp(end.qp, wanted, mask)
        for end in self.ends:
            self.write(end, b"armed")
            self.pair.drive()
        assert [self.state(end) for end in self.ends] == [MigrationState.ARMED] * 2

    def state(self, end: End) -> MigrationState:
        return end.nic.query_qp(end.qp).path_mig_state

    def write(self, end: End, data: bytes) -> None:
        end.write(data, to=end.peer.region)

    def migrate(self, end: End) -> None:
        wanted = QPAttributes(path_mig_state=MigrationState.MIGRATED)
        end.nic.modify_qp(end.qp, wanted, QPAttrMask.PATH_MIG_STATE)
        self.primary = 1 - self.primary

    def wait(self, timeouts: float) -> None:
        self.pair.drive(until=self.pair.simulator.now + round(timeouts * TIMEOUT))

    def finish(self) -> None:
        """Heal both paths: everything that was posted succeeds."""
        self.link.cut.clear()
        self.pair.drive()
        for end in self.ends:
            assert {done.status for done in end.poll()} <= {WCStatus.SUCCESS}


@pytest.mark.parametrize("used", [0, 3, RETRIES])
@pytest.mark.parametrize("who", ["owner", "peer"])
def test_a_migration_restores_all_retries(used: int, who: str) -> None:
    two = TwoPaths()
    client, server = two.ends
    two.link.cut_path(0)
    two.write(client, b"data")
    two.wait(used + 0.5)
    assert client.nic.counters.local_ack_timeout_err == used
    two.link.cut.add((1, 1))
    if who == "peer":
        two.migrate(server)
        two.write(server, b"over")
        two.wait(0.1)
    else:
        two.migrate(client)
    assert two.state(client) == MigrationState.MIGRATED
    two.wait(RETRIES - 1)
    two.finish()
    assert server.region.read(4) == b"data"


@pytest.mark.parametrize("alternate", [0, 1])
def test_an_alternate_path_may_have_another_pkey(alternate: int) -> None:
    two = TwoPaths(alternate)
    client, server = two.ends
    two.migrate(client)
    two.write(client, b"over")
    two.finish()
    assert server.region.read(4) == b"over"
    assert [two.state(end) for end in two.ends] == [MigrationState.MIGRATED] * 2
    assert not server.nic.drops


def test_the_pkey_of_the_alternate_path_is_wrong_on_the_primary_one() -> None:
    two = TwoPaths(1)
    client, server = two.ends
    for wanted, mask in (
        (QPAttributes(qp_state=QPState.SQD), QPAttrMask.STATE),
        (QPAttributes(pkey_index=1), QPAttrMask.PKEY_INDEX),
        (QPAttributes(qp_state=QPState.RTS), QPAttrMask.STATE),
    ):
        client.nic.modify_qp(client.qp, wanted, mask)
    two.write(client, b"data")
    two.wait(0.5)
    assert server.nic.drops.total() == 1
    assert two.state(server) == MigrationState.ARMED


class TwoPathsThatFail(RuleBasedStateMachine):
    """Paths are cut for fewer timeouts than there are retries: no connection ends."""

    @initialize(alternate=st.sampled_from([0, 1]))
    def begin(self, alternate: int) -> None:
        self.two = TwoPaths(alternate)
        self.number = 0
        self.waited = 0
        """Timeouts since the last migration, or since all work was done."""

    @rule(end=st.sampled_from([0, 1]))
    def write(self, end: int) -> None:
        self.number += 1
        self.two.write(self.two.ends[end], self.number.to_bytes(4, "big"))

    @rule(path=st.sampled_from([0, 1]), senders=st.sampled_from([(1,), (2,), (1, 2)]))
    def cut(self, path: int, senders: tuple[int, ...]) -> None:
        self.two.link.cut |= {(path, sender) for sender in senders}

    @precondition(lambda self: self.waited < RETRIES - 1)
    @rule(timeouts=st.integers(1, RETRIES - 1))
    def wait(self, timeouts: int) -> None:
        timeouts = min(timeouts, RETRIES - 1 - self.waited)
        self.waited += timeouts
        self.two.wait(timeouts)

    @precondition(lambda self: not self.migrated())
    @rule(end=st.sampled_from([0, 1]))
    def migrate(self, end: int) -> None:
        self.two.migrate(self.two.ends[end])
        self.waited = 0

    def migrated(self) -> bool:
        states = [self.two.state(end) for end in self.two.ends]
        return MigrationState.MIGRATED in states

    @rule()
    def heal(self) -> None:
        self.two.finish()
        self.waited = 0

    @rule()
    def rearm(self) -> None:
        self.heal()
        if self.migrated():
            for end in self.two.ends:
                self.write(self.two.ends.index(end))
            self.two.finish()
            self.two.rearm()

    def teardown(self) -> None:
        if hasattr(self, "two"):
            self.two.finish()


TestTwoPathsThatFail = TwoPathsThatFail.TestCase
