"""The requester's machines: those of the golden files, at any first PSN and with any profile.

Each service has a machine of its own; that of XRC with the inputs of RC is the machine of RC.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rdmawire.errors import FuzzError
from rdmawire.fuzz.learn.requester_peer import RESPONSES
from rdmawire.fuzz.learn.requester_system import (
    ALPHABETS,
    TIMEOUT,
    TO_RTS,
    USUAL,
    WORK_TEMPLATES,
    Limits,
    RequesterSystem,
)
from rdmawire.ib import retransmit
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.rules import ExtendedHeader, Rules
from rdmawire.ib.send_queue import Wqe
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.verbs.enums import QPState, QPType, WCStatus
from rdmawire.verbs.profile import BUGS_6_1, BUGS_6_12, PROFILES, RXE_6_1, RXE_6_12, Profile
from rdmawire.wire.header import Header
from rdmawire.wire.ib import DETH, RETH, XRCETH, Ack, Nak
from tests.fuzz.learn.golden_machines import (
    SERVICE_OF,
    answers,
    distinguishing_word,
    golden,
    learned,
    unlike,
)
from tests.fuzz.parameters import fast_or_slow, slow

WITH_RESPONSES = [name for name in ALPHABETS if SERVICE_OF.get(name) not in (QPType.UC, QPType.UD)]


def system(name: str, **values: Any) -> RequesterSystem:
    values.setdefault("service", SERVICE_OF.get(name, QPType.RC))
    return RequesterSystem(ALPHABETS[name], **values)


SMALL = ["naks", "credits", "unreliable", "datagrams"]
"""Alphabets whose machines are learned in a moment."""


@pytest.mark.parametrize("name", ALPHABETS)
def test_the_requester_answers_as_its_golden_machine(name: str) -> None:
    assert unlike(system(name), golden(f"requester-{name}")) is None


@pytest.mark.parametrize("name", fast_or_slow(ALPHABETS, SMALL))
def test_the_requester_has_its_golden_machine(name: str) -> None:
    known = golden(f"requester-{name}")
    found = learned(system(name), known)
    assert distinguishing_word(found, known) is None
    assert found == known


@pytest.mark.parametrize(
    "name", fast_or_slow(["acks", "atomics", "credits", *SERVICE_OF], ["credits", "datagrams"])
)
def test_the_machine_is_learned_without_the_golden_one(name: str) -> None:
    depth = int(
        name in ("unreliable", "datagrams")
    )  # a limit of two unsignaled sends shows in words of three
    assert learned(system(name), depth=depth) == golden(f"requester-{name}")


@pytest.mark.parametrize("psn", [0xFF_FFFE, *slow([0, 0xFF_FFFF, 0x7F_FFFF])])
@pytest.mark.parametrize("name", ["naks", "credits", *slow(["acks"])])
def test_the_machine_is_the_same_at_any_first_psn(name: str, psn: int) -> None:
    assert learned(system(name, psn=psn), walks=20) == golden(f"requester-{name}")


@pytest.mark.parametrize("name", ["acks", *SERVICE_OF, *slow(["rnr", "reads", "atomics"])])
def test_the_machine_is_the_same_where_psns_wrap(name: str) -> None:
    assert unlike(system(name, psn=0xFF_FFFE), golden(f"requester-{name}")) is None


@pytest.mark.parametrize("profile", fast_or_slow(sorted(PROFILES.keys() - {"ibta"}), ["rxe"]))
@pytest.mark.parametrize("name", fast_or_slow(ALPHABETS, ["acks", "shared", *SMALL]))
def test_healthy_profiles_have_the_machine_of_the_standard(name: str, profile: str) -> None:
    inputs = [one for one in ALPHABETS[name] if one != "SEND_SILENT"]
    known = golden(f"requester-{name}").restricted(inputs).minimal()
    service = SERVICE_OF.get(name, QPType.RC)
    found = RequesterSystem(inputs, service=service, profile=PROFILES[profile])
    assert unlike(found, known) is None


@pytest.mark.parametrize("name", ["unreliable", "datagrams"])
def test_linux_frees_the_slot_of_unsignaled_work_at_once(name: str) -> None:
    """The standard frees it when a later completion is polled: IBA 10.8.6."""
    word = unlike(system(name, profile=RXE_6_12), golden(f"requester-{name}"))
    assert word == ("SEND_SILENT", "SEND_SILENT", "SEND")


@pytest.mark.parametrize(
    "name",
    fast_or_slow([name for name in WITH_RESPONSES if name not in SERVICE_OF], ["naks", "credits"]),
)
def test_an_xrc_initiator_has_the_machine_of_a_reliable_connection(name: str) -> None:
    assert unlike(system(name, service=QPType.XRC_INI), golden(f"requester-{name}")) is None


LINUX = {
    "6.1": replace(RXE_6_1, bugs=BUGS_6_1),
    "6.12": replace(RXE_6_12, bugs=BUGS_6_12),
}


@pytest.mark.parametrize("profile", LINUX.values(), ids=LINUX)
def test_linux_completes_a_read_by_an_ack(profile: Profile) -> None:
    buggy = RequesterSystem(ALPHABETS["reads"], profile=profile)
    given = answers(buggy, ("READ", "ACK"))
    assert given == ["RDMA_READ_REQUEST?@0*1", "READ=SUCCESS.other_bytes"]


@pytest.mark.slow
@pytest.mark.parametrize("profile", LINUX.values(), ids=LINUX)
def test_linux_differs_in_an_ack_of_a_read(profile: Profile) -> None:
    known = golden("requester-reads")
    buggy = RequesterSystem(ALPHABETS["reads"], profile=profile)
    assert distinguishing_word(known, learned(buggy, known)) == ("READ", "ACK")


def test_linux_6_12_ends_a_read_at_an_old_ack() -> None:
    inputs = ("READ3", "READ_FIRST", "READ_MIDDLE", "ACK_OLD")
    healthy = learned(RequesterSystem(inputs, profile=RXE_6_12))
    buggy = RequesterSystem(inputs, profile=LINUX["6.12"])
    word = distinguishing_word(healthy, learned(buggy, healthy))
    assert word == ("READ3", "READ_FIRST", "ACK_OLD", "READ_MIDDLE")
    assert answers(buggy, word)[-1] == "READ3=SUCCESS.other_bytes"


# Planted bugs: the rules of the standard, with one row replaced.


def _with_refusal(kind: Ack, new: Callable[[QueuePair, int], None]) -> Rules:
    return replace(STANDARD, refusals={**STANDARD.refusals, kind: new})


def _waits_for_ever(qp: QueuePair, timer: int) -> None:
    """As the standard's, but the RNR retries are never used up."""
    STANDARD.refusals[Ack.RNR_NAK](qp, timer)
    qp.retry_state.rnr_retries = qp.retry_state.rnr_retry


def _fails_at_a_gap(qp: QueuePair, code: int) -> None:
    """As the standard's, but a PSN sequence error is taken for an invalid request."""
    STANDARD.refusals[Ack.NAK](qp, code or Nak.INVALID_REQUEST)


def _takes_any_code(qp: QueuePair, code: int) -> None:
    """As the standard's, but a remote access error is reported as a remote operational error."""
    wqe = qp.sq.oldest()
    if code == Nak.REMOTE_ACCESS_ERROR and wqe is not None:
        retransmit.fail(qp, wqe, WCStatus.REM_OP_ERR)
    else:
        STANDARD.refusals[Ack.NAK](qp, code)


def _reads_from_the_start(_: Any, wqe: Wqe) -> Header:
    """A RETH that asks for all responses again, at the PSN of the first one that is missing."""
    return RETH(wqe.wr.remote_address, wqe.wr.rkey, wqe.length)


def _bare_ack_completes(qp: QueuePair, response: Any) -> None:
    """As the standard's, but an ACK acknowledges all that was sent."""
    psn = (qp.sq.next_psn - 1) % (1 << 24)
    STANDARD.responses[17](qp, response._replace(psn=psn))


BUGS = {
    "rnr retries without end": (
        "rnr",
        _with_refusal(Ack.RNR_NAK, _waits_for_ever),
        ("SEND", "RNR", "TIMEOUT", "RNR"),
    ),
    "a gap is an error": (
        "acks",
        _with_refusal(Ack.NAK, _fails_at_a_gap),
        ("SEND", "NAK_SEQUENCE"),
    ),
    "a wrong status": ("naks", _with_refusal(Ack.NAK, _takes_any_code), ("WRITE", "NAK_ACCESS")),
    "a resumed read begins again": (
        "reads",
        STANDARD.with_header(RETH, ExtendedHeader(_reads_from_the_start, {})),
        ("READ3", "READ_FIRST", "READ_MIDDLE_NEXT"),
    ),
    "an ack acknowledges all": (
        "acks",
        replace(STANDARD, responses={**STANDARD.responses, 17: _bare_ack_completes}),
        ("SEND2", "ACK"),
    ),
}


def _with_state(kind: QPType, state: QPState) -> Rules:
    """Local errors of sends lead to this state."""
    service = replace(STANDARD.services[kind], send_error=state)
    return replace(STANDARD, services={**STANDARD.services, kind: service})


def _own_qkey_is_sent(qp: QueuePair, wqe: Wqe) -> Header:
    """As the standard's, but the Q_Key of the work request is always sent."""
    return DETH(qkey=wqe.wr.remote_qkey, srcqp=qp.qp_num)


BUGS |= {
    "a local error ends an unreliable connection": (
        "unreliable",
        _with_state(QPType.UC, QPState.ERR),
        ("SEND_BADKEY", "TO_RTS"),
    ),
    "the own Q_Key is not used": (
        "datagrams",
        STANDARD.with_header(DETH, ExtendedHeader(_own_qkey_is_sent, {})),
        ("SEND_OWN_QKEY",),
    ),
    "packets name no shared receive queue": (
        "shared",
        STANDARD.with_header(XRCETH, ExtendedHeader(lambda _, __: XRCETH(), {})),
        ("SEND2_QUEUE1",),
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_last_input_of_a_word_shows_a_planted_bug(bug: str) -> None:
    name, rules, word = BUGS[bug]
    given = answers(system(name, rules=rules), word)
    expected = list(golden(f"requester-{name}").outputs(word))
    assert given[:-1] == expected[:-1]
    assert given[-1] != expected[-1]


LEARNED = ["a wrong status", "the own Q_Key is not used"]


@pytest.mark.parametrize("bug", fast_or_slow(BUGS, LEARNED))
def test_a_planted_bug_shows_as_a_shortest_word(bug: str) -> None:
    name, rules, word = BUGS[bug]
    known = golden(f"requester-{name}")
    assert distinguishing_word(known, learned(system(name, rules=rules), known)) == word


# Details of the system.


@pytest.mark.parametrize("every_th", [5, *slow([1])])
def test_each_input_is_in_an_alphabet_or_can_be_chosen(every_th: int) -> None:
    every = {*WORK_TEMPLATES, *RESPONSES, TIMEOUT, TO_RTS}
    assert {name for names in ALPHABETS.values() for name in names} < every
    for kind in USUAL:
        found = RequesterSystem(sorted(every), service=kind, limits=Limits(queue=8))
        for first in sorted(WORK_TEMPLATES)[::every_th]:
            for name in found.inputs:
                assert "other_" not in " ".join(answers(found, (first, name, TIMEOUT))).replace(
                    "SEND_ONLY@0.other_peer,SEND_OTHER=SUCCESS", ""
                )


def test_a_target_of_xrc_sends_no_requests() -> None:
    with pytest.raises(FuzzError, match="type XRC_TGT send no requests"):
        RequesterSystem(service=QPType.XRC_TGT)


@pytest.mark.parametrize("name", ["unreliable", "datagrams"])
def test_unexpected_responses_change_nothing(name: str) -> None:
    machine = golden(f"requester-{name}")
    unexpected = {one for one in machine.inputs if one in RESPONSES}
    assert len(unexpected) >= 4
    for steps in machine.transitions:
        assert {steps[response].output for response in unexpected} == {"-"}
    assert all(
        steps[response].target == state
        for state, steps in enumerate(machine.transitions)
        for response in unexpected
    )


def test_an_unknown_input_is_refused() -> None:
    with pytest.raises(FuzzError, match="a requester has no input 'SEND9'"):
        RequesterSystem(("SEND9",))


def test_a_message_has_the_bytes_of_memory_and_a_read_brings_those_of_the_peer() -> None:
    system = RequesterSystem()
    word = ("SEND3", "ACK_ALL", "READ3", "READ_FIRST", "READ_MIDDLE", "READ_LAST")
    assert answers(system, word) == [
        "SEND_FIRST@0,SEND_MIDDLE@1,SEND_LAST?@2",
        "SEND3=SUCCESS",
        "RDMA_READ_REQUEST?@0*3",
        "-",
        "-",
        "READ3=SUCCESS",
    ]


@pytest.mark.parametrize("retries", [0, 3])
def test_time_outs_are_counted(retries: int) -> None:
    system = RequesterSystem(limits=Limits(retry_cnt=retries))
    given = answers(system, ["WRITE"] + ["TIMEOUT"] * (retries + 1))
    again = ["RDMA_WRITE_ONLY?@0"] * (retries + 1)
    assert given == [*again, "WRITE=RETRY_EXC_ERR"]
