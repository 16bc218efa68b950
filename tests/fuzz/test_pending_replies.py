"""Replies that wait until the target has room: the model, and the software RNIC beside it."""

from random import Random

import pytest

from rdmawire.errors import FuzzError
from rdmawire.fuzz.engine_target import EngineTarget
from rdmawire.fuzz.exchange import Reply
from rdmawire.fuzz.frames import payload_bytes
from rdmawire.fuzz.fuzzer import EngineFuzzer
from rdmawire.fuzz.inputs import Case, Input, PacketInput, ReceiveInput
from rdmawire.fuzz.oracle import Session, judge
from rdmawire.fuzz.planted_bugs import planted_rules
from rdmawire.fuzz.replay_scenario import scenario_text
from rdmawire.fuzz.responder_inputs import ResponderInputs
from rdmawire.fuzz.service_model import RESPONDER_MODELS
from rdmawire.fuzz.setup import AREAS, Setup
from rdmawire.fuzz.target import HoldingTarget
from rdmawire.verbs.enums import QPType
from rdmawire.wire.opcode import Operation as Op
from tests.fuzz.parameters import slow

SEND = PacketInput(Op.SEND_ONLY, length=8, room=0)
WRITE = PacketInput(Op.RDMA_WRITE_ONLY, length=8, room=0)
READ = PacketInput(Op.RDMA_READ_REQUEST, dmalen=600, room=0)
ADD = PacketInput(Op.FETCH_ADD, value=1, room=0)
GAP = PacketInput(Op.SEND_ONLY, ahead=1, room=0)


def transmitted(*inputs: Input, setup: Setup | None = None) -> list[list[Reply]]:
    """The replies of the software RNIC after each input; the model has the same."""
    target = EngineTarget()
    session = Session(target)
    session.recording = True
    session.begin(setup or Setup())
    found = []
    for one in inputs:
        session.frames.clear()
        assert session.play(one) is None
        replies = [session._reply_of(data) for sent, data in session.frames if sent]
        found.append([reply for reply in replies if reply is not None])
    assert session.end() is None
    return found


def shown(replies: list[Reply]) -> list[tuple[str, int]]:
    return [(Op(reply.operation).name, reply.psn) for reply in replies]


def room(one: PacketInput, frames: int | None, **values: int) -> PacketInput:
    names = {name: getattr(one, name) for name in ("opcode", "length", "dmalen", "value", "ahead")}
    return PacketInput(**(names | values), room=frames)


ACK = "ACKNOWLEDGE"
FIRST, MIDDLE, LAST, ONLY = (
    f"RDMA_READ_RESPONSE_{part}" for part in ("FIRST", "MIDDLE", "LAST", "ONLY")
)


def test_acks_coalesce() -> None:
    *waiting, last = transmitted(WRITE, WRITE, room(WRITE, None))
    assert waiting == [[], []]
    assert shown(last) == [(ACK, 1002)]
    assert last[0].msn == 3


def test_an_ack_that_is_due_precedes_a_response() -> None:
    *_, last = transmitted(WRITE, WRITE, room(READ, None))
    assert shown(last) == [(ACK, 1001), (FIRST, 1002), (MIDDLE, 1003), (LAST, 1004)]


def test_frames_are_transmitted_as_there_is_room() -> None:
    steps = transmitted(READ, room(WRITE, 2), room(WRITE, 0), room(WRITE, 5))
    assert [shown(step) for step in steps] == [
        [],
        [(FIRST, 1000), (MIDDLE, 1001)],
        [],
        [(LAST, 1002), (ACK, 1005)],
    ]


def test_a_read_that_waits_returns_the_bytes_of_its_execution() -> None:
    *_, last = transmitted(READ, room(WRITE, None))
    start = AREAS[0].start
    target = EngineTarget()
    target.reset(Setup())
    assert last[0].data == bytes(target.memory())[start : start + 256]


def test_credits_are_those_of_the_transmission() -> None:
    receives = [ReceiveInput(64)] * 3
    *_, last = transmitted(*receives, SEND, SEND, room(WRITE, None))
    assert [reply.syndrome for reply in last] == [1]


def test_an_rnr_nak_waits_once() -> None:
    *_, last = transmitted(SEND, SEND, room(SEND, None))
    assert shown(last) == [(ACK, 1000)]
    assert last[0].syndrome == 1 << 5 | 12


def test_a_nak_replaces_four_acks_and_naks() -> None:
    """Each READ keeps the ACK of a duplicate before it apart from the next."""
    setup = Setup(rd_atomic=4)
    reads = [room(READ, None, dmalen=1)] * 4
    duplicates = [room(WRITE, 0, ahead=-number) for number in (8, 6, 4, 2)]
    writes = [room(WRITE, None)] * 4
    begun = [one for pair in zip(writes, reads, strict=True) for one in pair]
    *_, last = transmitted(*begun, *duplicates[:3], room(GAP, None), setup=setup)
    assert shown(last) == [(ACK, 1000), (ACK, 1002), (ACK, 1004), (ACK, 1008)]
    *_, last = transmitted(*begun, *duplicates, room(GAP, None), setup=setup)
    assert shown(last) == [(ACK, 1008)]
    assert last[-1].syndrome == 3 << 5


def test_a_duplicate_of_a_request_that_waits_is_answered_once() -> None:
    *_, last = transmitted(READ, ADD, room(READ, None, ahead=-4))
    assert shown(last) == [
        (FIRST, 1000),
        (MIDDLE, 1001),
        (LAST, 1002),
        ("ATOMIC_ACKNOWLEDGE", 1003),
    ]


def test_responses_behind_a_duplicate_begin_again() -> None:
    setup = Setup(rd_atomic=4)
    *_, two, last = transmitted(
        room(ADD, None), READ, room(WRITE, 2), room(ADD, None, ahead=-5), setup=setup
    )
    assert shown(two) == [(FIRST, 1001), (MIDDLE, 1002)]
    assert [name for name, _ in shown(last)] == ["ATOMIC_ACKNOWLEDGE", FIRST, MIDDLE, LAST, ACK]


def test_what_a_shorter_duplicate_left_out_is_read_again() -> None:
    """The last response of a READ is requested again, then the last two; memory changed before."""
    reads = [
        PacketInput(Op.RDMA_READ_REQUEST, dmalen=768, room=0),
        PacketInput(Op.RDMA_READ_REQUEST, ahead=-3, offset=512, dmalen=256, room=0),
        PacketInput(Op.RDMA_READ_REQUEST, ahead=-4, offset=256, dmalen=512),
    ]
    first = PacketInput(Op.RDMA_WRITE_FIRST, length=256, dmalen=519, room=0, seed=1)
    middle = PacketInput(Op.RDMA_WRITE_MIDDLE, length=256, room=0, seed=2)
    *_, last = transmitted(reads[0], first, middle, *reads[1:])
    assert last[0].data == payload_bytes(2, 256)


def test_first_responses_that_wait_count_as_outstanding() -> None:
    *_, last = transmitted(ADD, room(ADD, None), setup=Setup(rd_atomic=1))
    assert [reply.syndrome for reply in last] == [0, 3 << 5 | 1]


def test_replies_that_wait_survive_an_error() -> None:
    *_, last = transmitted(WRITE, ADD, room(WRITE, None, dmalen=9))
    assert shown(last) == [(ACK, 1000), ("ATOMIC_ACKNOWLEDGE", 1001), (ACK, 1002)]
    assert last[-1].syndrome == 3 << 5 | 1


def test_replies_that_wait_at_the_end_are_compared() -> None:
    case = Case(Setup(), (READ, room(WRITE, 0)))
    assert judge(EngineTarget(), case) is None
    broken = judge(EngineTarget(rules=planted_rules("write-changes-pending-read")), case)
    assert broken is not None
    assert broken.what == "pending replies"
    assert broken.clause == "IBA 9.7.5.1.2, 9.7.5.1.4"
    assert "[PSN 1000: " in broken.expected
    assert "of the data]" in broken.happened


@pytest.mark.parametrize("runs", [80, *slow([400])])
@pytest.mark.parametrize("service", ["rc", "xrc"])
@pytest.mark.parametrize("profile", ["ibta", "rxe"])
def test_the_software_rnic_agrees_with_the_model(service: str, profile: str, runs: int) -> None:
    spec = {"kind": "engine", "service": service, "profile": profile, "accept": "all"}
    batch = EngineFuzzer(spec | {"counters": "yes"}).batch(5, 0, runs)
    assert batch.found == []


def test_a_case_with_room_is_kept_as_json() -> None:
    case = Case(Setup(), (READ, room(WRITE, None)))
    assert Case.from_json(case.as_json()) == case
    assert str(READ).endswith("the target transmits 0 frames at most")


def test_a_target_that_cannot_wait_is_refused() -> None:
    class Plain:
        """A target without ``send_within``."""

        name = "plain"

        def __init__(self) -> None:
            inner = EngineTarget()
            for method in ("reset", "numbers", "path", "send", "completions", "memory", "wait"):
                setattr(self, method, getattr(inner, method))
            self.post_receive = inner.post_receive

    session = Session(Plain())  # type: ignore[arg-type]
    assert not isinstance(Plain(), HoldingTarget)
    session.begin(Setup())
    with pytest.raises(FuzzError, match="plain: no method send_within, so room cannot be 0"):
        session.play(READ)
    fuzzer = EngineFuzzer({"kind": "engine"}, Plain())  # type: ignore[arg-type]
    assert fuzzer.batch(1, 0, 50).found == []


@pytest.mark.parametrize("service", RESPONDER_MODELS)
def test_only_services_with_replies_wait(service: QPType) -> None:
    rooms = set()
    for seed in range(20):
        session = Session(EngineTarget())
        session.begin(Setup(service=service))
        inputs = ResponderInputs(Random(seed), session.model, holds=True)
        drawn = [inputs.next() for _ in range(20)]
        rooms |= {one.room for one in drawn if isinstance(one, PacketInput)}
    answers = service in (QPType.RC, QPType.XRC_TGT)
    assert rooms == ({None, 0, 1, 2, 5} if answers else {None})


def test_a_scenario_cannot_play_replies_that_wait() -> None:
    with pytest.raises(FuzzError, match="the target transmits later"):
        scenario_text(Case(Setup(), (READ,)))
