"""Dependencies and matching: schedules compared with a plain model of them."""

import itertools
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.fabric import Simulator
from rdmawire.gpudirect.workload import (
    ANY,
    Kind,
    Operation,
    Workload,
    WorkloadError,
    WorkloadRun,
    WorkloadSpec,
    check_workload,
)
from rdmawire.gpudirect.workload.replay import (
    Done,
    Mailbox,
    MessageCosts,
    RankMessage,
    Replay,
)
from tests.gpudirect.workload.schedules import any_source, failure, goal, schedules

Place = tuple[int, int]


class RandomCarrier:
    """Moves messages with random delays, and notes which one each receive gets."""

    def __init__(self, replay: Replay, seed: int) -> None:
        self.replay = replay
        self.random = Random(seed)
        self.got: dict[Place, Place] = {}

    def _later(self, message: RankMessage, *done: Done) -> None:
        time = self.replay.simulator.now
        for action in done:
            time += self.random.randrange(50)
            self.replay.simulator.call_at(time, partial(action, message))

    def send(self, message: RankMessage) -> None:
        self._later(message, self._arrive, self.replay.acknowledged)

    def announce(self, message: RankMessage) -> None:
        self._later(message, self.replay.arrived)

    def clear(self, message: RankMessage) -> None:
        self._later(message, self.replay.cleared)

    def finish(self) -> None:
        """Nothing is lost."""

    def _arrive(self, message: RankMessage) -> None:
        self.replay.arrived(message)


class Log(Replay):
    """A replay that notes when operations begin and end, and the receives of messages."""

    def __init__(self, workload: Workload, eager: int, seed: int) -> None:
        super().__init__(workload, Simulator(), MessageCosts(eager))
        self.begins: dict[Place, int] = {}
        self.ends: dict[Place, int] = {}
        self.order: list[Place] = []
        self.got: dict[Place, Place] = {}
        self.carrier = RandomCarrier(self, seed)

    def _started(self, number: int, index: int) -> None:
        self.begins[number, index] = self.simulator.now
        self.order.append((number, index))
        super()._started(number, index)

    def _end(self, number: int, index: int) -> None:
        assert (number, index) not in self.ends
        self.ends[number, index] = self.simulator.now
        super()._end(number, index)

    def _matched(self, message: RankMessage, receive: int) -> None:
        self.got[message.target, receive] = message.source, message.index
        super()._matched(message, receive)


def places(ranks: list[list[Operation]], kind: Kind) -> Iterator[Place]:
    for rank, operations in enumerate(ranks):
        for index, one in enumerate(operations):
            if one.kind is kind:
                yield rank, index


def check_times(log: Log) -> None:
    """Each operation waits for what it depends on, and a stream does one computation at a time."""
    streams: dict[Place, list[tuple[int, int]]] = defaultdict(list)
    for (rank, index), begin in log.begins.items():
        one = log.workload.ranks[rank][index]
        end = log.ends[rank, index]
        assert all(log.ends[rank, before] <= begin for before in one.after)
        assert all(log.begins[rank, before] <= begin for before in one.after_start)
        if one.kind is Kind.COMPUTE:
            assert end - begin == one.size
        if one.kind is Kind.COMPUTE and one.size:
            streams[rank, one.stream].append((begin, end))
    for times in streams.values():
        times.sort()
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(times))


@given(schedules(), st.integers(0, 200), st.integers(0, 9))
def test_all_is_done_in_order_and_messages_are_matched_in_order(
    ranks: list[list[Operation]], eager: int, seed: int
) -> None:
    workload = Workload("x", ["x"], ranks)
    check_workload(workload)
    log = Log(workload, eager, seed)
    if failure(log.run):
        assert deadlocked(ranks, eager)
        return
    assert len(log.ends) == workload.operations
    check_times(log)
    # The n-th send of a key that began is the one that the n-th receive of it gets.
    sends: dict[tuple[int, ...], list[Place]] = defaultdict(list)
    for rank, index in log.order:
        one = ranks[rank][index]
        if one.kind is Kind.SEND:
            sends[rank, one.peer, one.tag].append((rank, index))
    for rank, index in log.order:
        one = ranks[rank][index]
        if one.kind is Kind.RECEIVE:
            assert log.got[rank, index] == sends[one.peer, rank, one.tag].pop(0)


@given(schedules(), st.integers(0, 200), st.integers(0, 9))
def test_receives_of_any_source_get_each_message_once(
    ranks: list[list[Operation]], eager: int, seed: int
) -> None:
    workload = Workload("x", ["x"], any_source(ranks))
    check_workload(workload)
    log = Log(workload, eager, seed)
    if text := failure(log.run):
        assert "waits forever" in text
        return
    check_times(log)
    assert sorted(log.got) == sorted(places(ranks, Kind.RECEIVE))
    assert sorted(log.got.values()) == sorted(places(ranks, Kind.SEND))
    # From one source messages are taken in the order in which they were sent.
    began = {place: number for number, place in enumerate(log.order)}
    for target in range(len(ranks)):
        taken = [log.got[place] for place in log.order if place[0] == target and place in log.got]
        for source in range(len(ranks)):
            mine = [began[place] for place in taken if place[0] == source]
            assert mine == sorted(mine)


def done_by(ranks: list[list[Operation]], eager: int) -> set[Place]:
    """What a plain model does: again and again, all that can be done, until nothing is left.

    A message is known by its tag. A short send is done when it has begun, a long one when its
    receive has begun too; a receive is done when both have begun.
    """
    begun: set[Place] = set()
    done: set[Place] = set()
    while True:
        before = len(begun) + len(done)
        for rank, operations in enumerate(ranks):
            for index, one in enumerate(operations):
                ready = all((rank, other) in done for other in one.after)
                if ready and all((rank, other) in begun for other in one.after_start):
                    begun.add((rank, index))
                if (rank, index) in begun and _is_done(ranks, begun, (rank, index), eager):
                    done.add((rank, index))
        if len(begun) + len(done) == before:
            return done


def _is_done(ranks: list[list[Operation]], begun: set[Place], place: Place, eager: int) -> bool:
    one = ranks[place[0]][place[1]]
    if one.kind is Kind.COMPUTE or (one.kind is Kind.SEND and one.size <= eager):
        return True
    return any(
        other.tag == one.tag and other.kind not in {Kind.COMPUTE, one.kind}
        for rank, index in begun
        for other in [ranks[rank][index]]
    )


def deadlocked(ranks: list[list[Operation]], eager: int) -> bool:
    """Whether some long message could wait for its receive."""
    return any(one.kind is Kind.SEND and one.size > eager for rank in ranks for one in rank)


@given(schedules(unique=True, circles=True), st.integers(0, 200), st.integers(0, 9))
def test_circles_and_deadlocks_are_those_of_a_plain_model(
    ranks: list[list[Operation]], eager: int, seed: int
) -> None:
    workload = Workload("x", ["x"], ranks)
    done = done_by(ranks, eager)
    cycle = failure(partial(check_workload, workload))
    text = cycle or failure(Log(workload, eager, seed).run)
    assert bool(text) == (len(done) < workload.operations)
    assert not text or ("a cycle of dependencies" if cycle else "waits forever") in text


TWO = "num_ranks 2\nrank 0 {\n%s}\nrank 1 {\n%s}\n"


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("a: calc 1\nb: calc 1\nc: calc 2\na requires b\nb irequires a\nc requires b\n", "",
         "rank 0: a cycle of dependencies: a after b after a (x.goal, line 3)"),
        ("a: calc 1\na requires a\n", "",
         "rank 0: a cycle of dependencies: a after a (x.goal, line 3)"),
        ("s: send 5b to 1 tag 2\n", "",
         ("rank 0, s (x.goal, line 3): send of 5 bytes to rank 1 with tag 2 has no receive: "
         "rank 1 has 0 receives for 1 send")),
        ("s: send 5b to 1 tag 2\n", "r: recv 5b from 0 tag 3\n",
         ("rank 1, r (x.goal, line 6): recv of 5 bytes from rank 0 with tag 3 has no send: "
         "rank 0 has 0 sends for 1 receive")),
        ("s: send 5b to 1 tag 2\n", "r: recv 5b from -1 tag 2\nq: recv 5b from -1 tag 2\n",
         ("rank 1, q (x.goal, line 7): recv of 5 bytes from any rank with tag 2 has no send: "
         "none is left for it")),
        ("send 5b to 7\n", "",
         ("rank 0, operation 0 (x.goal, line 3): send of 5 bytes to rank 7 with tag 0, but ranks"
         " are 0 to 1")),
    ],
)  # fmt: skip
def test_what_cannot_end_is_found_before_the_run(first: str, second: str, message: str) -> None:
    with pytest.raises(WorkloadError) as error:
        WorkloadRun(goal(TWO % (first, second)))
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("r: recv 5b from 1\ns: send 5b to 1\ns requires r\n",
         "r: recv 5b from 0\ns: send 5b to 0\ns requires r\n",
         ("rank 0, r (x.goal, line 3): recv of 5 bytes from rank 1 with tag 0 waits forever: "
         "rank 1, s (x.goal, line 9) has not begun; 4 operations of 4 not done")),
        ("s: send 9000b to 1\nr: recv 9000b from 1\nr requires s\n",
         "s: send 9000b to 0\nr: recv 9000b from 0\nr requires s\n",
         ("rank 0, s (x.goal, line 3): send of 9000 bytes to rank 1 with tag 0 waits forever for a"
         " receive; 4 operations of 4 not done")),
        ("s: send 5b to 1 tag 4\n", ("r: recv 5b from 0 tag -1\nq: recv 5b from -1 tag 4\n"
         "s: send 5b to 1 tag 8\n"),
         ("rank 1, q (x.goal, line 7): recv of 5 bytes from any rank with tag 4 waits forever: "
         "no message is left for it; 1 operation of 4 not done")),
        ("s: send 6b to 1\n", "r: recv 5b from 0\n",
         ("rank 1, r (x.goal, line 6): recv of 5 bytes from rank 0 with tag 0, but its message is"
         " longer: rank 0, s (x.goal, line 3): send of 6 bytes to rank 1 with tag 0")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("flows", [False, True])
def test_what_does_not_end_is_one_line(first: str, second: str, message: str, flows: bool) -> None:
    run = WorkloadRun(goal(TWO % (first, second)), WorkloadSpec(flows=flows))
    with pytest.raises(WorkloadError) as error:
        run.run()
    assert str(error.value) == message


def test_short_messages_do_not_wait_for_receives() -> None:
    text = TWO % ("s: send 8000b to 1\nr: recv 8000b from 1\nr requires s\n",
                  "s: send 8000b to 0\nr: recv 8000b from 0\nr requires s\n")  # fmt: skip
    assert WorkloadRun(goal(text)).run().messages == 2
    with pytest.raises(WorkloadError, match="waits forever for a receive"):
        WorkloadRun(goal(text), WorkloadSpec(eager=7999)).run()


ENDS = st.tuples(st.integers(ANY, 2), st.integers(ANY, 2))


@given(st.lists(st.tuples(st.booleans(), ENDS), max_size=40))
def test_a_mailbox_is_as_two_lists_that_are_searched(steps: list[tuple[bool, Place]]) -> None:
    mailbox = Mailbox()
    receives: list[tuple[int, Place]] = []
    messages: list[RankMessage] = []
    for index, (is_receive, (peer, tag)) in enumerate(steps):
        if is_receive:
            taken = next((one for one in messages if fits((peer, tag), one)), None)
            if taken is None:
                receives.append((index, (peer, tag)))
            else:
                messages.remove(taken)
            assert mailbox.post(index, Operation(Kind.RECEIVE, 1, peer, tag)) is taken
        else:
            message = RankMessage(abs(peer), index, Operation(Kind.SEND, 1, 0, abs(tag)), index)
            first = next((one for one in receives if fits(one[1], message)), None)
            if first is None:
                messages.append(message)
            else:
                receives.remove(first)
            assert mailbox.deliver(message) == (first and first[0])
    assert mailbox.waiting() == [index for index, _ in receives]


def fits(ends: Place, message: RankMessage) -> bool:
    return ends[0] in {ANY, message.source} and ends[1] in {ANY, message.tag}


def test_a_mailbox_finds_the_last_of_many_receives() -> None:
    """With a search for each message, this takes minutes."""
    count = 40_000
    mailbox = Mailbox()
    for index in range(count):
        assert mailbox.post(index, Operation(Kind.RECEIVE, 1, ANY, index)) is None
    for index in reversed(range(count)):
        message = RankMessage(0, index, Operation(Kind.SEND, 1, 0, index), 0)
        assert mailbox.deliver(message) == index
    assert mailbox.waiting() == []


@pytest.mark.parametrize(
    "spec",
    [
        WorkloadSpec(gpus=-1),
        WorkloadSpec(rate=-1),
        WorkloadSpec(latency=-1),
        WorkloadSpec(eager=-1),
    ],
)
def test_numbers_below_0_are_refused(spec: WorkloadSpec) -> None:
    with pytest.raises(WorkloadError, match="below 0"):
        WorkloadRun(goal(TWO % ("", "")), spec._replace(flows=True))
