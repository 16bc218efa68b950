"""The cases of errors: each fault that there is, and its consequences in the tables."""

import pytest

from rdmawire.ib.retransmit import NAK_STATUS
from rdmawire.ib.service import DATAGRAM, RELIABLE, UNRELIABLE, Fault, Reaction
from rdmawire.wire import roce
from rdmawire.wire.ib import AETH, Ack, Nak
from tests.golden.bench import Object, RecordedCase, read
from tools.make_captures.golden.case import CLIENT, SERVER

TABLES = {"RC": RELIABLE, "XRC": RELIABLE, "UC": UNRELIABLE, "UD": DATAGRAM}
CASES = [recorded for recorded in read("errors") if "fault" in recorded.described]


def reaction(recorded: RecordedCase) -> Reaction:
    return TABLES[recorded.described["service"]][Fault[recorded.described["fault"]]]


def naks(recorded: RecordedCase) -> set[int]:
    """The codes of the NAKs that the server sent."""
    aeths = (roce.parse(frame).packet.header(AETH) for _, frame in recorded.by(SERVER))
    return {aeth.value for aeth in aeths if aeth is not None and aeth.ack == Ack.NAK}


def failed(end: Object) -> list[str]:
    """The statuses of what ended otherwise than well, and was not flushed."""
    statuses = [done["status"] for done in end["completions"]]
    return [status for status in statuses if status not in ("SUCCESS", "WR_FLUSH_ERR")]


def cases() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("recorded", CASES, ids=lambda recorded: recorded.name)


@cases()
def test_the_server_does_what_its_table_says(recorded: RecordedCase) -> None:
    expected, server = reaction(recorded), recorded.described["comes_to"][SERVER]
    assert naks(recorded) == ({expected.nak} if expected.nak is not None else set())
    assert server["state"] == ("ERR" if expected.fatal else "RTS")
    assert failed(server) in ([], [expected.status.name if expected.status else ""])
    if expected.drop is not None:
        assert server["drops"][expected.drop.name] >= 1
    if expected.notice is not None and not failed(server):
        assert server["events"] == [expected.notice.__name__]


@cases()
def test_the_client_completes_with_the_status_of_the_nak(recorded: RecordedCase) -> None:
    expected = reaction(recorded)
    if CLIENT not in recorded.described["comes_to"]:
        assert recorded.scripted
        return
    client = recorded.described["comes_to"][CLIENT]
    status = NAK_STATUS[expected.nak].name if expected.nak is not None else None
    assert failed(client) == ([status] if status else [])
    assert client["state"] == ("ERR" if status else "RTS")


OF_OTHER_CAPTURES = {
    # Neither is an error: they are what retransmission.pcap and rnr.pcap are about.
    *(RELIABLE[fault] for fault in (Fault.DUPLICATE, Fault.SEQUENCE, Fault.NOT_READY)),
    # A gap is found by what comes behind it.
    UNRELIABLE[Fault.SEQUENCE],
    # The profile of the golden captures has its pages at once.
    UNRELIABLE[Fault.PAGE_FAULT],
    # Processes do not end there.
    *(table[Fault.OWNER_GONE] for table in (RELIABLE, UNRELIABLE)),
}


def test_every_reaction_to_a_fault_has_a_case() -> None:
    shown = {(Fault[recorded.described["fault"]], reaction(recorded)) for recorded in CASES}
    every = {row for table in (RELIABLE, UNRELIABLE, DATAGRAM) for row in table.items()}
    assert {reaction for _, reaction in every - shown} == OF_OTHER_CAPTURES


def test_every_nak_code_is_answered_by_a_requester() -> None:
    codes = {
        code
        for recorded in read("errors")
        if recorded.name.startswith("told")
        for code in naks(recorded)
    }
    assert codes >= set(Nak)


def test_faults_that_are_no_errors_are_in_their_captures() -> None:
    refused = {code for recorded in read("retransmission") for code in naks(recorded)}
    assert refused == {Nak.PSN_SEQUENCE_ERROR}
    assert any(recorded.name.startswith("twice-") for recorded in read("retransmission"))
    assert all(recorded.name.startswith("rnr-") for recorded in read("rnr"))
