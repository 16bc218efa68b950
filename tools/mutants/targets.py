"""What is mutated, the tests that are to find it, and the mutants that no test can find."""

from typing import NamedTuple

from tools.mutants.mutation import ROOT, Mutant

_KEYS = (
    "tests/test_identifier.py", "tests/fabric/test_host_identifiers.py",
    "tests/memory/test_key.py", "tests/memory/test_key_chosen.py", "tests/memory/test_mw.py",
    "tests/memory/test_region.py", "tests/memory/test_region_on_demand.py",
    "tests/memory/test_fast_reg.py",
)  # fmt: skip
_REQUESTER = (
    "tests/ib/test_completer.py", "tests/ib/test_requester.py",
    "tests/ib/test_retransmit_rnr.py", "tests/ib/test_responder_soft_roce.py",
    "tests/ib/test_congestion.py", "tests/ib/test_modify_qp.py",
    "tests/ib/test_responder_page_fault.py", "tests/ib/test_hw_counters.py",
    "tests/ib/test_retransmit.py",
)  # fmt: skip
_RESPONDER = (
    "tests/ib/test_responder.py", "tests/ib/test_responder_rights.py",
    "tests/ib/test_responses.py", "tests/ib/test_responder_absent_memory.py",
    "tests/ib/test_responses_order.py", "tests/verbs/test_ah_of_completion.py",
    "tests/ib/test_service_uc.py", "tests/ib/test_service_xrc.py",
    "tests/ib/test_responder_page_fault.py", "tests/ib/test_responder_key_revocation.py",
    "tests/ib/test_congestion.py", "tests/ib/test_checks_malformed_requests.py",
    "tests/ib/test_responder_soft_roce.py", "tests/ib/test_hw_counters.py",
    "tests/ib/test_responder_duplicates.py", "tests/ib/test_execute_receive_completion.py",
    "tests/ib/test_responder_state.py",
)  # fmt: skip
_SLOW = (
    "tests/ib/test_retransmit.py", "tests/ib/test_engine_hostile_frames.py",
    "tests/ib/test_verbs_arguments.py",
)  # fmt: skip
_NIC = tuple(
    path
    for folder in ("tests/ib", "tests/verbs")
    for path in (str(each.relative_to(ROOT)) for each in sorted((ROOT / folder).glob("test_*.py")))
    if path not in _SLOW
)
_TEST_FOLDERS = ("tests/ib/congestion", "tests/ib/machines")
_WIRE = (("tests/wire",), ("tests/golden", "tests/decode"))
_DISSECT = (("tests/dissect",), ("tests/golden", "tests/decode"))

TARGETS: dict[str, tuple[tuple[str, ...], ...]] = {
    "rdmawire/memory/key.py": (_KEYS, ("tests/memory",), _NIC),
    "rdmawire/memory/region.py": (_KEYS, ("tests/memory",), _NIC),
    "rdmawire/memory/mr_table.py": (_KEYS, ("tests/memory",), _NIC),
    "rdmawire/memory/address_space.py": (("tests/memory",), _NIC),
    **dict.fromkeys((
        "rdmawire/wire/codec.py", "rdmawire/wire/icrc.py", "rdmawire/wire/inet.py",
        "rdmawire/wire/mpa.py", "rdmawire/wire/packet.py", "rdmawire/wire/rdmap.py",
        "rdmawire/wire/roce.py",
    ), _WIRE),
    **dict.fromkeys((
        "rdmawire/dissect/dissection.py", "rdmawire/dissect/iwarp.py",
        "rdmawire/dissect/mpa_framing.py", "rdmawire/dissect/mpa_resync.py",
        "rdmawire/dissect/tcp.py", "rdmawire/dissect/walk.py",
    ), _DISSECT),
    "rdmawire/ib/checks.py": (_RESPONDER, _NIC, _SLOW),
    "rdmawire/ib/completer.py": (_REQUESTER, _NIC, (*_SLOW, _TEST_FOLDERS[0])),
    "rdmawire/ib/responder.py": (_RESPONDER, _NIC, (*_SLOW, *_TEST_FOLDERS)),
    "rdmawire/ib/execute.py": (_RESPONDER, _NIC, _SLOW),
    "rdmawire/ib/responder_state.py": (_RESPONDER, _NIC, (*_SLOW, *_TEST_FOLDERS)),
    "rdmawire/ib/responses.py": (_RESPONDER, _NIC, (*_SLOW, *_TEST_FOLDERS)),
    "rdmawire/ib/service.py": (_RESPONDER, _NIC, _SLOW),
    "rdmawire/ib/retransmit.py": (_REQUESTER, _NIC, (*_SLOW, _TEST_FOLDERS[0])),
}  # fmt: skip
"""By file: tests, those first that most likely find a mutant; the next only if those do not."""


class Equivalent(NamedTuple):
    """A mutant that behaves as the code does: a line of ``file`` (stripped), and why."""

    file: str
    line: str
    was: str
    becomes: str
    reason: str

    def matches(self, file: str, source: str, mutant: Mutant) -> bool:
        """Whether this is the mutant, in a file with this source."""
        line = source.splitlines()[mutant.line - 1].strip()
        return (file, line, mutant.was, mutant.becomes) == self[:4]


EQUIVALENT: tuple[Equivalent, ...] = (
    Equivalent(
        "rdmawire/ib/checks.py",
        "behind = serial.distance(inbound.epsn, request.psn) < 0",
        "serial.distance(inbound.epsn, request.psn) < 0",
        "(serial.distance(inbound.epsn, request.psn) <= 0)",
        "the distance is not 0: a PSN that is the one expected has returned before",
    ),
    Equivalent(
        "rdmawire/ib/checks.py",
        "behind = serial.distance(inbound.epsn, request.psn) < 0",
        "0",
        "1",
        "the distance is not 0: a PSN that is the one expected has returned before",
    ),
    Equivalent(
        "rdmawire/ib/checks.py",
        "fits = length < dmalen and not role.ends",
        "length < dmalen",
        "(length <= dmalen)",
        "stands in the else branch of dmalen == length",
    ),
    Equivalent(
        "rdmawire/ib/completer.py",
        "_settle_whole(qp, serial.span(before, psn))",
        "_settle_whole(qp, serial.span(before, psn))",
        "pass",
        "the loop after it completes the same messages with _settled, in more calls",
    ),
    Equivalent(
        "rdmawire/ib/completer.py",
        "if end > packets or wqe.verb.takes_resource or wqe.status is not None:",
        "end > packets",
        "(end >= packets)",
        "what is not completed here, _settled completes: one call more, and the same outcome",
    ),
    Equivalent(
        "rdmawire/ib/completer.py",
        "if end > packets or wqe.verb.takes_resource or wqe.status is not None:",
        "wqe.status is not None",
        "(wqe.status is None)",
        "work at the front that has a status was retired already, so nothing is completed here",
    ),
    Equivalent(
        "rdmawire/ib/completer.py",
        '_place(qp, wqe, 0, b"")',
        "0",
        "1",
        "nothing is written, so the offset has no effect",
    ),
    Equivalent(
        "rdmawire/ib/execute.py",
        "if qp.inbound.reads and grant is not None:",
        "qp.inbound.reads and grant is not None",
        "(qp.inbound.reads or grant is not None)",
        "without a READ nothing is kept, and no READ has the key None",
    ),
    Equivalent(
        "rdmawire/ib/execute.py",
        "return _respond(qp, role, answer, "
        "Resource(request.flow.bth.opcode, request.psn, 1, 0, asked))",
        "0",
        "1",
        "of a FLUSH or an ATOMIC WRITE that is repeated the opcode alone is compared",
    ),
    Equivalent(
        "rdmawire/ib/execute.py",
        "NO_DATAGRAM = tuple(WorkCompletion(0)[10:])",
        "0",
        "1",
        "wr_id is the first field of a completion, and not among those from the tenth on",
    ),
    Equivalent(
        "rdmawire/ib/execute.py",
        "if not (qp.device.profile.page_fault_ns and target.length):",
        "qp.device.profile.page_fault_ns and target.length",
        "(qp.device.profile.page_fault_ns or target.length)",
        "fault_in does nothing for 0 bytes; without page_fault_ns it only loads what the response "
        "reads",
    ),
    Equivalent(
        "rdmawire/ib/execute.py",
        "qp.inbound.incoming = NO_MESSAGE",
        "qp.inbound.incoming = NO_MESSAGE",
        "pass",
        "each datagram begins a message, which replaces the last one",
    ),
    Equivalent(
        "rdmawire/ib/responder_state.py",
        "NO_MESSAGE = InboundMessage(IDLE, NOTHING, 0)",
        "0",
        "1",
        "the family is compared before the limit, and no packet continues NO_MESSAGE",
    ),
    Equivalent(
        "rdmawire/ib/responses.py",
        "qp.inbound.reads -= 1",
        "qp.inbound.reads -= 1",
        "pass",
        "a count that is too large only makes keep search where there is no READ",
    ),
    Equivalent(
        "rdmawire/ib/responses.py",
        "qp.inbound.reads -= 1",
        "qp.inbound.reads -= 1",
        "qp.inbound.reads += 1",
        "a count that is too large only makes keep search where there is no READ",
    ),
    Equivalent(
        "rdmawire/ib/responses.py",
        "read.all_kept |= touched == range(read.packets)",
        "read.all_kept |= touched == range(read.packets)",
        "pass",
        "it only saves work: keep does not keep a response twice",
    ),
    Equivalent(
        "rdmawire/ib/responses.py",
        "read.all_kept |= touched == range(read.packets)",
        "read.all_kept |= touched == range(read.packets)",
        "read.all_kept &= touched == range(read.packets)",
        "it only saves work: keep does not keep a response twice",
    ),
    Equivalent(
        "rdmawire/ib/responses.py",
        "if read.all_kept or read.whole is not None:",
        "read.all_kept or read.whole is not None",
        "(read.all_kept and read.whole is not None)",
        "it only saves work: keep does not keep a response twice",
    ),
    Equivalent(
        "rdmawire/ib/responder_state.py",
        "self.reads += isinstance(answer, ReadResponse)",
        "self.reads += isinstance(answer, ReadResponse)",
        "self.reads -= isinstance(answer, ReadResponse)",
        "keep only asks whether it is 0, and finds no READ where there is none",
    ),
    Equivalent(
        "rdmawire/ib/responder_state.py",
        "elif not any(serial.in_window(answer.psn, psn, done + 1) for answer in self.pending):",
        "1",
        "2",
        "no pending answer has a PSN after the expected one",
    ),
    Equivalent(
        "rdmawire/ib/responder.py",
        "_XRC = _roles(Service.XRC, reliable=True)",
        "True",
        "False",
        "the first step is replaced by one that checks the sequence of opcodes, too; the second "
        "then checks it again",
    ),
    Equivalent(
        "rdmawire/ib/service.py",
        "NO_OPCODE = -1",
        "1",
        "2",
        "any negative number says that there is no such packet",
    ),
    Equivalent(
        "rdmawire/memory/region.py",
        "self._path = counters[Path.HOST]",
        "self._path = counters[Path.HOST]",
        "pass",
        "a region without pages counts nothing, and one with pages counts by their path",
    ),
    Equivalent(
        "rdmawire/memory/region.py",
        "self._delta = self._shift = self._mask = self._page_size = self._copies = 0",
        "0",
        "1",
        "translate sets all five; before, _checked and footprint ask for the backing first",
    ),
)
