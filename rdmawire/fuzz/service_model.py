"""The services that can be fuzzed: the model of each, by the type of its queue pair."""

from collections.abc import Collection, Mapping
from typing import Final

from rdmawire.errors import FuzzError
from rdmawire.fuzz.exchange import Numbers
from rdmawire.fuzz.responder_model import ResponderModel
from rdmawire.fuzz.responder_services import DatagramModel, SharedReceiveModel, UnreliableModel
from rdmawire.fuzz.setup import FRESH_ARENA, Setup
from rdmawire.terminal import quote, suggest
from rdmawire.verbs.enums import QPType
from rdmawire.verbs.profile import IBTA, Profile
from rdmawire.wire.opcode import Service

RESPONDER_MODELS: Final[Mapping[QPType, type[ResponderModel]]] = {
    QPType.RC: ResponderModel,
    QPType.UC: UnreliableModel,
    QPType.UD: DatagramModel,
    QPType.XRC_TGT: SharedReceiveModel,
}
"""The model of a responder, by the type of its queue pair."""

SERVICES: Final[Mapping[str, QPType]] = {
    model.wire.name.lower(): kind for kind, model in RESPONDER_MODELS.items()
}
"""Types of queue pairs by the name of their service, in lower case: rc, uc, ud, xrc."""


ALL: Final = "all"
"""The name of all services."""


def services_named(name: str) -> tuple[QPType, ...]:
    """Return the types of queue pairs of a service, or of :data:`ALL`, in upper or lower case.

    Raises :class:`FuzzError` for another name.
    """
    if name.lower() == ALL:
        return (*SERVICES.values(),)
    return (service_named(name, (*SERVICES, ALL)),)


def service_named(name: str, names: Collection[str] = (*SERVICES,)) -> QPType:
    """Return the type of queue pairs of a service, in upper or lower case.

    Raises :class:`FuzzError` for another name; ``names`` are those that it lists.
    """
    known = name.lower()
    if known not in SERVICES:
        raise FuzzError(
            f"service {quote(name)} is none of {', '.join(names)}{suggest(known, names)}"
        )
    return SERVICES[known]


def requester_type(kind: QPType) -> QPType:
    """Return the type of queue pairs that send to those of type ``kind``: XRC has two. IBA A14."""
    return QPType.XRC_INI if kind is QPType.XRC_TGT else kind


def wire_service(kind: QPType) -> Service:
    """Return the service of a queue pair. Raises :class:`FuzzError` for a type without a model."""
    if kind not in RESPONDER_MODELS:
        raise FuzzError(f"queue pairs of type {kind.name} have no model of a responder")
    return RESPONDER_MODELS[kind].wire


def fresh_model(setup: Setup, numbers: Numbers, profile: Profile = IBTA) -> ResponderModel:
    """Return the model of a fresh queue pair, with the accepted differences of ``profile``.

    Raises :class:`FuzzError` for a type without a model.
    """
    wire_service(setup.service)
    return RESPONDER_MODELS[setup.service](setup, numbers, bytearray(FRESH_ARENA), profile=profile)
