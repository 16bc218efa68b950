"""Which state machines of an adapter can be learned: a table of roles."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from rdmawire.errors import FuzzError
from rdmawire.fuzz.engine_target import EngineTarget
from rdmawire.fuzz.fuzzer import Spec, adapter
from rdmawire.fuzz.learn import requester_system
from rdmawire.fuzz.learn.learner import System
from rdmawire.fuzz.learn.machine import Word
from rdmawire.fuzz.learn.requester_system import RequesterSystem
from rdmawire.fuzz.learn.responder_alphabet import ALPHABETS, SETUP, alphabet
from rdmawire.fuzz.learn.responder_case import Judged, judged
from rdmawire.fuzz.learn.responder_system import ResponderSystem
from rdmawire.terminal import suggest


class Role(NamedTuple):
    """A role of an adapter.

    - ``alphabets``: what each set of inputs is about, by name; the first is the default.
    - ``system``: makes the system of an adapter, with a set of inputs (a name, or inputs separated
      by commas) and, if the role has PSNs, the first one.
    - ``judge``: plays a word on such a system, and judges it by the standard; ``None`` if there is
      no model of the role.
    """

    about: str
    alphabets: Mapping[str, str]
    system: Callable[[Spec, str, int | None], System]
    judge: Callable[[System, Word], Judged] | None = None


def _responder(spec: Spec, inputs: str, psn: int | None) -> ResponderSystem:
    rules, profile, name = adapter(spec)
    found = alphabet(inputs)
    return ResponderSystem(
        EngineTarget(rules=rules, profile=profile, name=name),
        found.inputs,
        setup=SETUP if psn is None else replace(SETUP, psn=psn),
        shows_credits=found.credits,
    )


def _requester(spec: Spec, inputs: str, psn: int | None) -> RequesterSystem:
    rules, profile, name = adapter(spec)
    names = requester_system.INPUTS.get(inputs) or tuple(dict.fromkeys(inputs.split(",")))
    first = SETUP.psn if psn is None else psn
    return RequesterSystem(names, rules=rules, profile=profile, psn=first, name=name)


def _judged(system: System, word: Word) -> Judged:
    assert isinstance(system, ResponderSystem)
    return judged(system, word)


ROLES: Final[dict[str, Role]] = {
    "responder": Role(
        "the responder of a reliable connection, by packets and receives",
        {name: found.about for name, found in ALPHABETS.items()},
        _responder,
        _judged,
    ),
    "requester": Role(
        "the requester of a reliable connection, by verbs, responses and its timer",
        {name: ", ".join(names) for name, names in requester_system.INPUTS.items()},
        _requester,
    ),
}
"""The roles by name."""


def role(name: str) -> Role:
    """Return a role. Raises :class:`FuzzError` for an unknown name."""
    if name not in ROLES:
        raise FuzzError(f"no role is named {name!r}{suggest(name, ROLES)}")
    return ROLES[name]
