"""What a connection manager may do with each message, also with a mutated one. IBA 12.

The answers to messages without mutations are those of a state machine for each role, in the folder
``machines``. A mutated message acts as the message, is ignored, or is refused; :data:`EFFECTS` says
of which fields a manager must not accept another value. So the state may be one of several, until
a later answer shows which.
"""

from collections.abc import Callable, Iterable
from enum import Enum
from functools import cache, partial
from pathlib import Path
from typing import Final, NamedTuple

from rdmawire.fuzz.frame_mutation import Mutant, Mutation
from rdmawire.fuzz.learn.machine import MealyMachine

FOLDER: Final = Path(__file__).parent / "machines"


@cache
def machine_of(role: str) -> MealyMachine:
    """Return the state machine of a role (:data:`rdmawire.fuzz.learn.cm_system.ALPHABETS`)."""
    return MealyMachine.from_dot((FOLDER / f"cm-{role}.dot").read_text("ascii"))


class Effect(Enum):
    """What a mutated field does."""

    NONE = "acts as the message, is ignored or refused"
    INVALID = "is ignored or refused"
    ANY = "may do anything that the manager does"


class Rule(NamedTuple):
    """What values of a field do, and the clause. ``applies`` says to which values."""

    effect: Effect
    clause: str = ""
    applies: Callable[[int], bool] = lambda _: True


def _is_no_transport(value: int) -> bool:
    return value > 1


def _is_no_mtu(value: int) -> bool:
    return not 1 <= value <= 5


def _is_other_partition(value: int) -> bool:
    return value & 0x7FFF != 0x7FFF


_IDS: Final = "IBA 12.6"
_REQ: Final = "IBA 12.6.5, 12.6.7.2"
_INVALID, _ANY = Effect.INVALID, Effect.ANY

_PATH: Final = {
    "local_gid": Rule(_INVALID, _REQ),
    "remote_gid": Rule(_INVALID, _REQ),
    "hop_limit": Rule(_INVALID, _REQ, lambda value: value == 0),
    "sl": Rule(_INVALID, _REQ, lambda value: value > 7),  # RoCE has eight: priorities of a VLAN
}
EFFECTS: Final[dict[tuple[str, str], Rule]] = {
    ("bth", "destqp"): Rule(_INVALID, "IBA 9.6.1.1"),
    ("bth", "pkey"): Rule(_INVALID, "IBA 9.6.1.1", _is_other_partition),
    ("deth", "qkey"): Rule(_INVALID, "IBA 10.2.4.3"),
    ("mad", "base_version"): Rule(_INVALID, "IBA 13.4.2"),
    ("mad", "mgmt_class"): Rule(_INVALID, "IBA 13.4.4"),
    ("mad", "class_version"): Rule(_INVALID, "IBA 12.6.1"),
    ("mad", "method"): Rule(_INVALID, "IBA 12.6.1"),
    ("mad", "attribute_id"): Rule(_ANY),
    ("mad", "transaction_id"): Rule(_ANY),
    ("cm_req", "local_comm_id"): Rule(_ANY),
    ("cm_req", "service_prefix"): Rule(_INVALID, _REQ),
    ("cm_req", "service_protocol"): Rule(_INVALID, _REQ),
    ("cm_req", "service_port"): Rule(_INVALID, _REQ),
    ("cm_req", "local_qpn"): Rule(_ANY),
    ("cm_req", "transport_service_type"): Rule(_INVALID, _REQ, _is_no_transport),
    ("cm_req", "local_cm_response_timeout"): Rule(_ANY),
    ("cm_req", "p_key"): Rule(_INVALID, _REQ, _is_other_partition),
    ("cm_req", "path_packet_payload_mtu"): Rule(_INVALID, _REQ, _is_no_mtu),
    ("cm_req", "max_cm_retries"): Rule(_ANY),
    ("cm_mra", "message_mraed"): Rule(_ANY),
    ("cm_mra", "service_timeout"): Rule(_ANY),
    ("cm_rej", "reason"): Rule(_ANY),
    ("cm_rep", "local_qpn"): Rule(_ANY),
    ("cm_dreq", "remote_qpn_eecn"): Rule(_INVALID, "IBA 12.6.10"),
    ("cm_sidr_req", "request_id"): Rule(_ANY),
    ("cm_sidr_req", "service_id"): Rule(_INVALID, "IBA 12.11.1"),
    ("cm_sidr_rep", "request_id"): Rule(_INVALID, "IBA 12.11.2"),
    ("cm_sidr_rep", "status"): Rule(_ANY),
    **{(label, row): rule
       for label in ("cm_primary_path", "cm_primary_path_ipv4") for row, rule in _PATH.items()},
    **{(f"cm_{name}", "remote_comm_id"): Rule(_INVALID, _IDS, bool)
       for name in ("mra", "rej", "rep", "rtu", "dreq", "drep", "lap", "apr")},
    **{(f"cm_{name}", "local_comm_id"): Rule(_INVALID, _IDS, bool)
       for name in ("mra", "rej", "rtu", "dreq", "drep", "lap", "apr")},
    ("cm_rep", "local_comm_id"): Rule(_ANY),
}  # fmt: skip
"""What a field of a message does that has another value, by label of the header and row.

Values to which its row does not apply, and other fields of messages, have :attr:`Effect.NONE`. An
id of 0 is one that the peer does not know yet: it has no effect of its own, but is accepted from
the initiator.
"""

_NEW: Final = ("ConnectRequest", "DatagramRequest")
"""Events of a request that is accepted."""


def effect_of(role: str, mutant: Mutant) -> tuple[Effect, str]:
    """Return what a mutated message may do, and the clause."""
    if mutant.checksum != "GOOD":
        return Effect.INVALID, "IBA 7.8.1, A17.3.3"
    rules = {rule.effect: rule.clause for rule in map(partial(_rule, role), mutant.mutations)}
    effect = next((one for one in (Effect.ANY, Effect.INVALID) if one in rules), Effect.NONE)
    return effect, rules.get(effect) or "IBA 12.6"


def _rule(role: str, one: Mutation) -> Rule:
    if one.kind != "set":
        return Rule(Effect.ANY)
    rule = EFFECTS.get((one.header, one.row))
    if rule is None:
        known = one.header.startswith("cm_") or one.header == "mad"
        return Rule(Effect.NONE if known else Effect.ANY)
    unknown = one.row == "local_comm_id" and "passive" not in role
    if unknown or (rule.applies is bool and not one.value):
        return Rule(Effect.ANY)
    return rule if rule.applies(one.value) else Rule(Effect.NONE)


class CMDifference(NamedTuple):
    """What a manager must answer, what it answered, and the clause."""

    expected: str
    happened: str
    clause: str


class CMModel:
    """The states that a manager may be in; ``states`` is ``None`` if that is not known."""

    def __init__(self, role: str) -> None:
        self.role, self.machine = role, machine_of(role)
        self.states: set[int] | None = {0}

    def step(self, name: str, output: str) -> CMDifference | None:
        """Compare the output of an input without mutations; return a difference, or ``None``."""
        if self.states is None:
            return None
        steps = [self.machine.transitions[state][name] for state in self.states]
        self.states = {step.target for step in steps if step.output == output}
        if self.states:
            return None
        clause = "IBA 12.11" if "sidr" in self.role else "IBA 12.9.5, 12.9.6"
        return CMDifference(_words(step.output for step in steps), output, clause)

    def mutated(self, name: str, output: str, mutant: Mutant) -> CMDifference | None:
        """Compare the output of a mutated message; return a difference, or ``None``."""
        effect, clause = effect_of(self.role, mutant)
        if self.states is None:
            return None
        if effect is Effect.ANY:
            self.states = None
            return None
        allowed: dict[int, list[str]] = {}
        for state in self.states:
            step = self.machine.transitions[state][name]
            if effect is Effect.NONE or _is_repetition(name, step.output):
                allowed.setdefault(step.target, []).append(step.output)
        found = {target for target, outputs in allowed.items() if output in outputs}
        if output == "-" or _is_refusal(name, output):
            found |= self.states
        if not found:
            outputs = [one for row in allowed.values() for one in row]
            return CMDifference(_words([*outputs, "no answer", "a refusal"]), output, clause)
        self.states = found
        return None


def _is_repetition(name: str, output: str) -> bool:
    """Whether an output answers a repeated request, which a manager recognises by its id alone."""
    return name in _REQUESTS and not output.startswith(_NEW)


_REQUESTS: Final = ("REQ", "REQ_OTHER_ID", "SIDR_REQ")


def _is_refusal(name: str, output: str) -> bool:
    """Whether an output is nothing but a refusal of the message."""
    first, _, rest = output.partition(",")
    if rest:
        return False
    if first.startswith("REJ."):
        return True
    refused = first.startswith("SIDR_REP.") and not first.startswith("SIDR_REP.SUCCESS")
    return (name.startswith("DREQ") and first.startswith("DREP")) or (
        name == "SIDR_REQ" and refused
    )


def _words(outputs: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(one if one != "-" else "no answer" for one in outputs))
