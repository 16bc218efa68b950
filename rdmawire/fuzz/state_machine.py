"""The machine of state-level fuzzing for Hypothesis: rules that draw steps, and the search.

Each rule of the machine plays one step of :mod:`rdmawire.fuzz.state_session`. A violation is an
exception of a class that belongs to its signature, so that Hypothesis shrinks each by itself.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, ClassVar, Final

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis import strategies as st
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from rdmawire.fuzz.setup import AREAS, WINDOW
from rdmawire.fuzz.state_fuzzer import StateFuzzer, case_of, violation_of
from rdmawire.fuzz.state_oracle import StateViolation
from rdmawire.fuzz.state_session import StateSession
from rdmawire.fuzz.state_setup import MAX_CONNECTIONS, PATH_MTU, Connection, StateSetup

ENDS: Final = st.integers(0, 3)
LENGTHS: Final = st.sampled_from(
    [
        *(0, 1, 7, 8, 9, 33),
        *(PATH_MTU - 1, PATH_MTU, PATH_MTU + 1),
        *(2 * PATH_MTU - 1, 2 * PATH_MTU, 2 * PATH_MTU + 1, 3 * PATH_MTU, 3 * PATH_MTU + 4),
    ]
)
"""Lengths of messages around the path MTU, in bytes."""
FLAGS: Final = st.sampled_from([2, 2, 2, 0, 3, 10])
"""Signaled mostly; unsignaled, fenced or inline: numbers of ibv_send_flags."""
REGIONS: Final = st.sampled_from([0, 0, 0, 2, 3])
OFFSETS: Final = st.sampled_from([0, 0, 8, 64, 128])
PSNS: Final = st.sampled_from([0, 100, 0x7FFFFF, 0xFFFFFD, 0xFFFFFF])
SIZES: Final = st.sampled_from([1024, 1024, 1024, 300, PATH_MTU, 8, 0])
"""Bytes of receives."""
BAD_OFFSETS: Final = st.sampled_from([-1, 1, 4, 249, 256, 505, 1793, 2041, 2048, 1 << 40])
"""Offsets at the ends of regions and beyond."""
BAD_KEYS: Final = st.sampled_from([0, 0, 1, 0x100, -0x100])
_SIZES: Final = tuple(area.length for area in (*AREAS, WINDOW))
"""Bytes of each region that a step may name."""


class Failure(Exception):
    """A violation that the machine found, with the case that shows it.

    ``signature`` is that of its class: see :func:`failure_class`.
    """

    signature: ClassVar[str] = ""

    def __init__(self, case: dict[str, Any], words: str) -> None:
        super().__init__(words)
        self.case = case

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle and copy by the signature: classes of failures have no names of their own."""
        return _failure, (self.signature, self.case, str(self)), vars(self)


def _failure(signature: str, case: dict[str, Any], words: str) -> Failure:
    return failure_class(signature)(case, words)


@lru_cache(maxsize=1024)
def failure_class(signature: str) -> type[Failure]:
    """Return the class of failures with this signature: Hypothesis tells failures by class."""
    return type("Failure", (Failure,), {"signature": signature}) if signature else Failure


class StateMachine(RuleBasedStateMachine):
    """Draws a setup and steps for a :class:`StateFuzzer`."""

    fuzzer: ClassVar[StateFuzzer]

    @initialize(data=st.data())
    def start(self, data: st.DataObject) -> None:
        """Make hosts and connections."""
        fuzzer = self.fuzzer
        hosts = data.draw(st.integers(2, len(fuzzer.profiles)))
        count = data.draw(st.integers(1, MAX_CONNECTIONS))
        connections = tuple(
            Connection(
                data.draw(st.sampled_from(fuzzer.services)),
                (number % (hosts - 1), number % (hosts - 1) + 1),
                (data.draw(PSNS), data.draw(PSNS)),
            )
            for number in range(count)
        )
        setup = StateSetup(connections, fuzzer.profiles[:hosts])
        self.session: StateSession | None = StateSession(setup, fuzzer.rules)
        fuzzer.runs += 1

    def play(self, name: str, **arguments: Any) -> None:
        """Play a step, unless a known violation ended the session."""
        session, fuzzer = self.session, self.fuzzer
        if session is None:
            return
        fuzzer.executed += 1
        try:
            session.play({"step": name, **arguments})
        except StateViolation as violation:
            shown = violation_of(violation.problem, session.steps)
            self.session = None
            if shown.signature not in fuzzer.known:
                raise failure_class(shown.signature)(case_of(session), str(violation)) from None

    # Work.

    @rule(
        end=ENDS,
        verb=st.sampled_from(["SEND", "SEND_WITH_IMM"]),
        length=LENGTHS,
        flags=FLAGS,
        value=st.integers(0, 3),
    )
    def send(self, **values: Any) -> None:
        """Send a message."""
        self.play("post", **values)

    @rule(
        end=ENDS,
        verb=st.sampled_from(["RDMA_WRITE", "RDMA_WRITE", "RDMA_WRITE_WITH_IMM"]),
        length=LENGTHS,
        flags=FLAGS,
        region=REGIONS,
        offset=OFFSETS,
    )
    def write(self, **values: Any) -> None:
        """Write to the peer's memory."""
        self.play("post", **values)

    @rule(
        end=ENDS,
        length=LENGTHS,
        flags=FLAGS,
        region=st.sampled_from([0, 0, 1]),
        offset=OFFSETS,
    )
    def read(self, **values: Any) -> None:
        """Read the peer's memory."""
        self.play("post", verb="RDMA_READ", **values)

    @rule(
        end=ENDS,
        verb=st.sampled_from(
            ["ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD", "ATOMIC_WRITE", "FLUSH"]
        ),
        flags=st.sampled_from([2, 2, 0, 3]),
        offset=OFFSETS,
        value=st.integers(0, 3),
    )
    def operate(self, **values: Any) -> None:
        """Do an atomic or a FLUSH on the peer's memory."""
        self.play("post", **values)

    @rule(
        end=ENDS,
        verb=st.sampled_from(["RDMA_WRITE", "RDMA_READ", "ATOMIC_FETCH_AND_ADD", "SEND_WITH_INV"]),
        length=LENGTHS,
        region=st.integers(0, 3),
        offset=BAD_OFFSETS,
        key=BAD_KEYS,
        lkey=st.sampled_from([0, 0, 0, 1]),
    )
    def misuse(self, **values: Any) -> None:
        """Post work at the edges of what keys allow, and beyond."""
        self.play("post", **values)

    @rule(
        end=ENDS,
        verb=st.sampled_from(["RDMA_WRITE", "RDMA_WRITE", "RDMA_READ"]),
        length=LENGTHS,
        region=st.integers(0, 3),
        beyond=st.sampled_from([0, 1, 1, 4]),
        at_end=st.booleans(),
    )
    def cross(self, *, beyond: int, at_end: bool, **values: Any) -> None:
        """Access memory up to an edge of a region, or some bytes ``beyond`` it."""
        size = _SIZES[values["region"]]
        offset = size - values["length"] + beyond if at_end else -beyond
        self.play("post", **values, offset=offset)

    @rule(end=ENDS, length=LENGTHS, flags=FLAGS)
    def send_invalidate(self, **values: Any) -> None:
        """Send a message that invalidates the window's key."""
        self.play("post", verb="SEND_WITH_INV", **values)

    @rule(end=ENDS, length=SIZES)
    def receive(self, **values: Any) -> None:
        """Post a receive."""
        self.play("receive", **values)

    @rule(end=ENDS, length=SIZES)
    def receive_again(self, **values: Any) -> None:
        """Post a receive: twice as often as other steps, because most messages need one."""
        self.play("receive", **values)

    # Queue pairs and keys.

    @rule(end=ENDS, state=st.sampled_from(["SQD", "RTS", "SQD", "RTS", "ERR", "RESET", "INIT"]))
    def modify(self, **values: Any) -> None:
        """Change a state."""
        self.play("modify", **values)

    @rule(end=ENDS)
    def reconnect(self, **values: Any) -> None:
        """Reset a connection and bring it up again."""
        self.play("reconnect", **values)

    @rule(end=ENDS, what=st.sampled_from(["bind", "bind", "invalidate", "destroy"]))
    def replace(self, what: str, end: int) -> None:
        """Bind or invalidate a window, or destroy and create a queue pair."""
        self.play(what, end=end)

    @rule(host=st.integers(0, 2), region=st.integers(0, 1))
    def register(self, **values: Any) -> None:
        """Register a region again."""
        self.play("register", **values)

    # Packets, faults and time.

    @rule(
        end=ENDS,
        opcode=st.integers(0, 31),
        ahead=st.sampled_from([0, 0, 0, -1, 1, -2, 5, 1 << 22, -(1 << 22)]),
        length=st.sampled_from([0, 8, 8, PATH_MTU, PATH_MTU, 100, PATH_MTU + 4]),
        region=st.integers(0, 3),
        value=st.sampled_from([0, 1, 31, 33, 96, 97, 98, 99, 100]),
    )
    def inject(self, end: int, **packet: int) -> None:
        """Deliver a packet that the peer did not send."""
        self.play("inject", end=end, packet=packet)

    @rule(
        do=st.sampled_from(
            ["drop", "drop", "duplicate", "delay", "reorder", "corrupt", "truncate"]
        ),
        ahead=st.integers(0, 5),
        by=st.sampled_from([0, 1, 4, 9, 40, 200]),
    )
    def fault(self, **values: Any) -> None:
        """Plan a fault of the link."""
        self.play("fault", **values)

    @rule(
        end=ENDS,
        verb=st.sampled_from(["RDMA_WRITE", "RDMA_WRITE", "RDMA_READ", "ATOMIC_FETCH_AND_ADD"]),
        length=LENGTHS,
        ahead=st.integers(0, 3),
    )
    def lose(self, ahead: int, **values: Any) -> None:
        """Lose a frame of some work, and let it be retransmitted."""
        self.play("fault", do="drop", ahead=ahead)
        self.play("post", **values)
        self.play("settle")

    @rule(ns=st.sampled_from([0, 1_000, 3_000, 30_000, 1_100_000]))
    def wait(self, **values: Any) -> None:
        """Let time pass."""
        self.play("wait", **values)

    @rule()
    def settle(self) -> None:
        """Let time pass until all is done."""
        self.play("settle")

    def teardown(self) -> None:
        """Let time pass until nothing is left to do, so that work that never ends is found."""
        if getattr(self, "session", None) is not None:
            self.play("settle")


def search(fuzzer: StateFuzzer, runs: int, number: int) -> list[dict[str, Any]]:
    """Play ``runs`` sequences for a fuzzer; return the cases that show new violations.

    ``number`` is the seed of these runs.
    """
    machine = type("Machine", (StateMachine,), {"fuzzer": fuzzer})
    if not fuzzer.derandomized:
        machine = seed(number)(machine)
    try:
        run_state_machine_as_test(machine, settings=_settings(fuzzer, runs))
    except Failure as failure:
        return [failure.case]
    except BaseExceptionGroup as group:
        cases = [one.case for one in _failures(group)]
        if not cases:
            raise
        return cases
    return []


def _failures(group: BaseExceptionGroup[BaseException]) -> Iterator[Failure]:
    for one in group.exceptions:
        if isinstance(one, BaseExceptionGroup):
            yield from _failures(one)
        elif isinstance(one, Failure):
            yield one


def _settings(fuzzer: StateFuzzer, runs: int) -> settings:
    phases = [Phase.generate] if fuzzer.database is None else [Phase.reuse, Phase.generate]
    if fuzzer.shrinks:
        phases.append(Phase.shrink)
    kept = fuzzer.database is not None and not fuzzer.derandomized
    return settings(
        max_examples=runs,
        stateful_step_count=fuzzer.max_steps,
        deadline=None,
        database=DirectoryBasedExampleDatabase(str(fuzzer.database)) if kept else None,
        derandomize=fuzzer.derandomized,
        phases=phases,
        report_multiple_bugs=True,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
        print_blob=False,
    )
