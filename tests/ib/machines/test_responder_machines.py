"""Emulated responders against the state machines of Linux's, learned from packets.

Each transition is taken on a fresh queue pair, by a shortest sequence of inputs, and followed by
words that tell the state behind it from all others. With the mistakes of its kernel a profile is
equal; without them, and with the standard's profile, it differs in what stands here alone.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from rdmawire.fuzz.learn.machine import MealyMachine
from rdmawire.verbs import profile as profiles
from rdmawire.verbs.profile import (
    BUGS_6_1,
    BUGS_6_12,
    IBTA,
    RXE_6_1,
    RXE_6_12,
    Bug,
    Profile,
)
from tests.ib.machines.alphabet import INPUTS
from tests.ib.machines.player import Player

KERNELS = ("61", "612")
ALPHABETS = ("A1", "A2", "A3")
PROFILES = {"61": RXE_6_1, "612": RXE_6_12}
BUGS = {"61": BUGS_6_1, "612": BUGS_6_12}
SIZES = {"A1": (12, 16), "A2": (27, 50), "A3": (30, 20)}
"""Inputs and states."""


class Difference(NamedTuple):
    """What an input is answered with: by the kernel, and by the emulated responder."""

    name: str
    kernel: str
    ours: str


class Reason(NamedTuple):
    """Why they differ: a field of the profile or a bug, and the clause that ours follows.

    Behind one that ``parts`` them the two are in different states; ``kernels`` show it.
    """

    why: str | Bug
    clause: str = "IBA 9.7.5.1.4"
    parts: bool = False
    kernels: tuple[str, ...] = KERNELS


_BUGS = {
    Difference("DUP", "ACK@old", "ACK@-1"): Reason(Bug.ACK_PSN_KEPT),
    Difference("DUP_SEND_MIDDLE", "ACK@old", "ACK@-1"): Reason(Bug.ACK_PSN_KEPT),
    Difference("FAR", "ACK@old", "ACK@-1"): Reason(Bug.ACK_PSN_KEPT),
    Difference("DUP_ATOMIC", "ATOMIC:ACK@-1", "-"): Reason(Bug.ATOMIC_FROM_READ),
    Difference("POST_RECV", "full", "ok"): Reason(Bug.ERR_FLUSHES_LATE, "IBA 10.3.1.7"),
    Difference("POST_SMALL", "full", "ok"): Reason(Bug.ERR_FLUSHES_LATE, "IBA 10.3.1.7"),
}
"""What the kernels get wrong."""

_CREDITS = Reason("end_to_end_credits", "IBA 9.7.7.2.4")
_LONG = Reason("too_long", "IBA 9.9.3")
_LENGTH = Reason("checks_send_lengths", "IBA 9.7.4.1.6", parts=True, kernels=("61",))

_STANDARD = {
    Difference("DUP", "ACK@-1", "-"): Reason("validates_duplicates"),
    Difference("DUP", "ACK@old", "-"): Reason("validates_duplicates"),
    Difference("DUP_READ", "RESP_LAST:ACK@-1", "-"): Reason("validates_duplicates"),
    Difference("FAR", "ACK@-1", "ACK@old"): Reason("acks_newest"),
    Difference("GAP", "NAK0@0", "-"): Reason("naks_gaps_after_rnr", "IBA 9.7.5.2.8"),
    Difference("POST_RECV", "ok", "ok,ACK@-1"): _CREDITS,
    Difference("POST_RECV", "ok", "ok,ACK@old"): _CREDITS,
    Difference("POST_SMALL", "ok", "ok,ACK@-1"): _CREDITS,
    Difference("POST_SMALL", "ok", "ok,ACK@old"): _CREDITS,
    Difference("SEND_ONLY", "NAK3@0", "NAK1@0"): _LONG,
    Difference("SEND_FIRST", "NAK3@0", "NAK1@0"): _LONG,
    Difference("SEND_INV_BAD", "NAK3@0", "NAK1@0"): _LONG,
    Difference("SEND_FIRST_SHORT", "ACK@0", "NAK1@0"): _LENGTH,
    Difference("SEND_MIDDLE_SHORT", "ACK@0", "NAK1@0"): _LENGTH,
    Difference("SEND_LAST_EMPTY", "ACK@0", "NAK1@0"): _LENGTH,
    Difference("SEND_OVER", "ACK@0", "NAK1@0"): _LENGTH,
    Difference("WRITE_FIRST_FITS", "ACK@0", "NAK1@0"): Reason(
        "first_may_fit", "IBA 9.7.4.1.6", parts=True
    ),
    Difference("RES_OP", "-", "NAK1@0"): Reason(
        "naks_malformed_requests", "IBA 9.7.4.1.4", parts=True
    ),
}
"""What the standard's profile does otherwise: by fields of the profile, each with its clause."""

CHOSEN = ("61", pytest.param("612", marks=pytest.mark.slow))
"""Most differences are those of both kernels; each is compared with its own profile, too."""
ALL = [(kernel, alphabet) for kernel in KERNELS for alphabet in ALPHABETS]
CONFORMANCE = Path(__file__).parents[3] / "docs" / "conformance.md"


@cache
def machine(kernel: str, alphabet: str) -> MealyMachine:
    """The machine learned from a kernel, such as ``61``, with an alphabet, such as ``A1``."""
    path = Path(__file__).parent / f"linux-{kernel}_{alphabet}.dot"
    return MealyMachine.from_dot(path.read_text())


def words(kernel: str, alphabet: str) -> Iterator[tuple[str, ...]]:
    """Each transition of a machine, with each word that tells the state behind it."""
    found = machine(kernel, alphabet)
    for state, steps in enumerate(found.transitions):
        for name, step in steps.items():
            for word in found.identification(step.target):
                yield (*found.access[state], name, *word)


def differences(
    kernel: str, alphabet: str, profile: Profile, known: dict[Difference, Reason]
) -> set[Difference]:
    """What a profile answers otherwise; words end where it is not known, or parts the two."""
    player, found = Player(profile), machine(kernel, alphabet)
    different = set()
    for word in words(kernel, alphabet):
        for answers in zip(word, found.outputs(word), player.play(word), strict=True):
            difference = Difference(*answers)
            if difference.kernel != difference.ours:
                different.add(difference)
                if difference not in known or known[difference].parts:
                    break
    return different


def all_differences(
    kernel: str, profile: Profile, known: dict[Difference, Reason]
) -> set[Difference]:
    """Those that any alphabet shows."""
    return set().union(*(differences(kernel, each, profile, known) for each in ALPHABETS))


def expected(kernel: str, known: dict[Difference, Reason]) -> set[Difference]:
    """The known differences that this kernel shows."""
    return {difference for difference, reason in known.items() if kernel in reason.kernels}


@pytest.mark.parametrize(("kernel", "alphabet"), ALL)
def test_the_machines_are_whole(kernel: str, alphabet: str) -> None:
    found = machine(kernel, alphabet)
    assert (len(found.inputs), len(found)) == SIZES[alphabet]
    assert found == found.minimal()
    assert set(found.inputs) <= set(INPUTS)


@pytest.mark.parametrize(("kernel", "alphabet"), ALL)
def test_a_profile_with_its_kernels_mistakes_is_its_kernel(kernel: str, alphabet: str) -> None:
    profile = replace(PROFILES[kernel], bugs=BUGS[kernel])
    assert differences(kernel, alphabet, profile, {}) == set()


@pytest.mark.parametrize("kernel", CHOSEN)
def test_without_the_mistakes_a_profile_differs_in_them(kernel: str) -> None:
    assert all_differences(kernel, PROFILES[kernel], _BUGS) == expected(kernel, _BUGS)


@pytest.mark.parametrize("kernel", CHOSEN)
def test_the_standards_profile_differs_where_a_clause_says_so(kernel: str) -> None:
    known = _BUGS | _STANDARD
    assert all_differences(kernel, IBTA, known) == expected(kernel, known)


def test_each_difference_is_a_field_of_the_profile() -> None:
    for reason in _STANDARD.values():
        assert isinstance(reason.why, str)
        kernels = [PROFILES[kernel] for kernel in reason.kernels]
        assert all(getattr(IBTA, reason.why) != getattr(each, reason.why) for each in kernels)


def test_each_difference_is_explained_with_its_clause() -> None:
    rows = [line for line in CONFORMANCE.read_text().splitlines() if line.startswith("| ")]
    for reason in (_BUGS | _STANDARD).values():
        name = reason.why.name if isinstance(reason.why, Bug) else reason.why
        (row,) = (row for row in rows if row.startswith(f"| `{name}`"))
        assert reason.clause.removeprefix("IBA ") in row


def test_every_mistake_is_of_a_kernel_and_explained() -> None:
    assert set().union(*BUGS.values()) == set(Bug)
    assert all(f"| `{bug.name}`" in CONFORMANCE.read_text() for bug in Bug)
    assert all(not profile.bugs for profile in profiles.PROFILES.values())
