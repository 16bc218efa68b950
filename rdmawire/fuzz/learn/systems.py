"""Which state machines can be learned: a table of roles."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from rdmawire.errors import FuzzError
from rdmawire.fuzz.engine_target import EngineTarget
from rdmawire.fuzz.fuzzer import Spec, adapter, manager
from rdmawire.fuzz.learn import cm_system, mpa_system, requester_system
from rdmawire.fuzz.learn.cm_system import CMSystem
from rdmawire.fuzz.learn.learner import System
from rdmawire.fuzz.learn.machine import Word
from rdmawire.fuzz.learn.mpa_system import MPASystem
from rdmawire.fuzz.learn.requester_system import RequesterSystem
from rdmawire.fuzz.learn.responder_alphabet import ALPHABETS, SETUP, USUAL, alphabet, listed_inputs
from rdmawire.fuzz.learn.responder_case import Judged, judged
from rdmawire.fuzz.learn.responder_system import ResponderSystem
from rdmawire.fuzz.service_model import requester_type, service_named
from rdmawire.terminal import suggest


class LearnedRole(NamedTuple):
    """A role of an adapter, or another part with a state machine.

    - ``alphabets``: the inputs of each set, by its name, each with a description.
    - ``system``: makes the system of an adapter, with a set of inputs (a name, or inputs separated
      by commas) or ``None`` for the default, and with the first PSN or ``None`` for the default.
    - ``judge``: plays a word on such a system, and judges it by the standard; ``None`` if there is
      no model of the role.
    """

    about: str
    alphabets: Mapping[str, str]
    system: Callable[[Spec, str | None, int | None], System]
    judge: Callable[[System, Word], Judged] | None = None


def _responder(spec: Spec, inputs: str | None, psn: int | None) -> ResponderSystem:
    rules, profile, name = adapter(spec)
    service = service_named(str(spec.get("service", "rc")))
    found = alphabet(USUAL[service] if inputs is None else inputs)
    return ResponderSystem(
        EngineTarget(rules=rules, profile=profile, name=name),
        found.inputs,
        setup=replace(SETUP, service=service, psn=SETUP.psn if psn is None else psn),
        shows_credits=found.credits,
    )


def _requester(spec: Spec, inputs: str | None, psn: int | None) -> RequesterSystem:
    rules, profile, name = adapter(spec)
    service = requester_type(service_named(str(spec.get("service", "rc"))))
    usual = requester_system.USUAL[service]
    names = _names(requester_system.ALPHABETS, usual if inputs is None else inputs)
    first = SETUP.psn if psn is None else psn
    return RequesterSystem(
        names, service=service, rules=rules, profile=profile, psn=first, name=name
    )


def _names(alphabets: Mapping[str, Word], inputs: str | None) -> Word:
    """The inputs of an alphabet, by default the first, or those that are listed."""
    name = next(iter(alphabets)) if inputs is None else inputs
    return alphabets.get(name) or listed_inputs(name)


def _manager(spec: Spec, inputs: str | None, psn: int | None) -> CMSystem:
    if "service" in spec:
        raise FuzzError("a connection manager has no service: --inputs selects its role")
    (rules, profile, name), cm_rules = manager(spec)
    names = _names(cm_system.ALPHABETS, inputs)
    first = SETUP.psn if psn is None else psn
    return CMSystem(names, rules=rules, profile=profile, psn=first, name=name, cm_rules=cm_rules)


def _mpa_reader(spec: Spec, inputs: str | None, psn: int | None) -> MPASystem:
    if psn is not None or len(spec) > 1:
        raise FuzzError("the MPA reader has no profile, service, planted bug or PSN")
    return MPASystem(_names(mpa_system.ALPHABETS, inputs))


def _judged(system: System, word: Word) -> Judged:
    assert isinstance(system, ResponderSystem)
    return judged(system, word)


ROLES: Final[dict[str, LearnedRole]] = {
    "responder": LearnedRole(
        "a responder, by packets and receives",
        {name: f"{found.about}: {', '.join(found.inputs)}" for name, found in ALPHABETS.items()},
        _responder,
        _judged,
    ),
    "requester": LearnedRole(
        "a requester, by verbs, responses and its timer",
        {name: ", ".join(names) for name, names in requester_system.ALPHABETS.items()},
        _requester,
    ),
    "cm": LearnedRole(
        "the connection manager, by calls of its owner, messages and its timers",
        {name: ", ".join(names) for name, names in cm_system.ALPHABETS.items()},
        _manager,
    ),
    "mpa": LearnedRole(
        "the reader of MPA start-up and FPDUs in a capture, by what both sides send",
        {name: ", ".join(names) for name, names in mpa_system.ALPHABETS.items()},
        _mpa_reader,
    ),
}
"""The roles by name."""


def role(name: str) -> LearnedRole:
    """Return a role. Raises :class:`FuzzError` for an unknown name."""
    if name not in ROLES:
        raise FuzzError(f"no role is named {name!r}{suggest(name, ROLES)}: {', '.join(ROLES)}")
    return ROLES[name]
