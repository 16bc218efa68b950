"""Where numbers of queue pairs, keys, PSNs and ids come from: counting, a seed, or entropy."""

from random import Random, SystemRandom

import pytest

from rdmawire.errors import VerbsError
from rdmawire.fabric.host import Host
from rdmawire.fabric.pair import CAP, Pair
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.identifier import Randomness
from rdmawire.memory.key import VARIANTS, Access
from rdmawire.verbs.enums import QPType


def numbers_of(pair: Pair) -> tuple[int, ...]:
    """All that a pair has of numbers."""
    ends = (pair.client, pair.server)
    qps = [number for end in ends for number in (end.qp.qp_num, end.qp.attributes.sq_psn)]
    return (*qps, *(end.region.rkey for end in ends))


def queue_pair(host: Host) -> QueuePair:
    cq = host.nic.create_cq(4)
    return host.nic.create_qp(QPType.RC, QPInit(host.pd, cq, cq, CAP))


def test_without_a_source_numbers_are_counted() -> None:
    assert numbers_of(Pair()) == (0x11, 100, 0x11, 100, 0x1050, 0x1050)
    host = Host()
    assert [queue_pair(host).qp_num for _ in range(3)] == [0x11, 0x12, 0x13]


def test_a_seed_gives_the_same_numbers_in_each_run() -> None:
    one, same, other = (numbers_of(Pair(random=Random(seed))) for seed in (1, 1, 2))
    assert one == same
    assert all(a != b for a, b in zip(one, other, strict=True))
    assert len(set(one)) == len(one)


@pytest.mark.parametrize("source", [Random(7), SystemRandom()])
def test_pairs_with_drawn_numbers_work(source: Randomness) -> None:
    pair = Pair(random=source)
    pair.client.write(b"hello", to=pair.server.region)
    read = pair.client.read(5, of=pair.server.region)
    pair.drive()
    assert read.buffer.read(5) == b"hello"
    qp, peer = pair.client.qp.attributes, pair.server.qp.attributes
    assert (qp.sq_psn, qp.rq_psn) == (peer.rq_psn, peer.sq_psn)


def test_drawn_queue_pairs_have_numbers_that_queue_pairs_may_have() -> None:
    host = Host(random=Random(1))
    numbers = {queue_pair(host).qp_num for _ in range(300)}
    assert len(numbers) == 300
    assert all(0x11 <= number < 0xFFFFFF for number in numbers)


class Stuck:
    """Draws the same bits again and again."""

    def getrandbits(self, k: int, /) -> int:
        return 0x5A5A5A5A & ((1 << k) - 1)


@pytest.mark.parametrize("source", [Random(3), Stuck()])
def test_drawn_keys_are_apart_and_none_comes_back(source: Randomness) -> None:
    """What was deregistered is refused, also where the source draws its index again."""
    host = Host(random=source)
    seen: set[int] = set()
    for _ in range(20):
        regions = [host.buffer(64).region for _ in range(10)]
        keys = {region.rkey for region in regions}
        assert not keys & seen
        assert all(key + 1 not in keys for key in keys)
        assert all(key // VARIANTS % 2 == 0 for key in keys)
        seen |= keys
        for region in regions:
            host.nic.memory.dereg_mr(region)
    assert len(seen) == 200


def test_a_drawn_key_gives_way_to_one_that_was_asked_for() -> None:
    host = Host(random=Stuck())
    memory, first = host.nic.memory, host.buffer(64).region
    wanted = first.rkey + 2 * VARIANTS
    memory.choose_key(first, wanted)
    keys = {host.buffer(64, Access.LOCAL_WRITE).region.rkey // VARIANTS for _ in range(4)}
    assert all(abs(key - wanted // VARIANTS) > 1 for key in keys)
    memory.dereg_mr(first)


@pytest.mark.parametrize("wrong", [1, "seed", object()])
def test_what_draws_nothing_is_no_source(wrong: Randomness) -> None:
    with pytest.raises(VerbsError):
        Host(random=wrong)
