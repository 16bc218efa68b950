"""The default rules of adapters, assembled from the modules that apply them.

A module of its own, because the modules below it apply rules without knowing which.
"""

from dataclasses import replace
from typing import Final

from rdmawire.ib.admission import PACKET_CHECKS
from rdmawire.ib.completer import RESPONSES
from rdmawire.ib.post_checks import POST_CHECKS, checks_of
from rdmawire.ib.requester import EXTENDED_HEADERS
from rdmawire.ib.responder import CNP, MALFORMED, REQUESTS
from rdmawire.ib.responses import RESPONSE_HEADERS
from rdmawire.ib.retransmit import REFUSALS
from rdmawire.ib.rules import Rules
from rdmawire.ib.rx_parser import FRAME_CHECKS
from rdmawire.ib.service import SERVICES, ServiceType
from rdmawire.verbs.enums import QPType
from rdmawire.verbs.wr import VERBS, Verb
from rdmawire.wire.packet import LAYOUTS

STANDARD: Final = Rules(
    services=SERVICES,
    requests=REQUESTS,
    malformed=MALFORMED,
    cnp=CNP,
    responses=RESPONSES,
    refusals=REFUSALS,
    post_checks=POST_CHECKS,
    verbs=VERBS,
    headers=EXTENDED_HEADERS | RESPONSE_HEADERS,
    opcodes=LAYOUTS,
    frame_checks=FRAME_CHECKS,
    packet_checks=PACKET_CHECKS,
)
"""The rules of the standard. Differences by profile are decided in the modules."""


def with_work(rules: Rules, qp_type: QPType, opcode: int, verb: Verb) -> Rules:
    """Return a copy in which queue pairs of ``qp_type`` accept one more work request opcode.

    ``opcode`` is that of the work request, ``verb`` how the work is done. The packets of its
    operations must have layouts in ``rules.opcodes`` (``WireError`` if not), and their headers rows
    in ``rules.headers`` (``ValueError``).
    """
    _check_packets(rules, rules.services[qp_type], verb)
    service = rules.services[qp_type].with_verb(opcode, verb, rules.opcodes)
    checks = checks_of(service, opcode, verb, rules.headers)
    posted = {**rules.post_checks[qp_type], opcode: checks}
    return replace(
        rules,
        services={**rules.services, qp_type: service},
        verbs={**rules.verbs, opcode: verb},
        post_checks={**rules.post_checks, qp_type: posted},
    )


def _check_packets(rules: Rules, service: ServiceType, verb: Verb) -> None:
    """Check that the packets of new work have layouts, and their headers rows that fill them."""
    if verb.only is None:
        raise ValueError("Verb.only is None: new work has an operation for messages of one packet")
    if service.wire is None:
        return
    operations = (verb.only, verb.first, verb.middle, verb.last)
    for operation in (each for each in operations if each is not None):
        for header in rules.opcodes.layout(service.base | operation).headers:
            if header not in rules.headers:
                name = header.__name__
                raise ValueError(f"Rules.headers has no row for {name}: add one with with_header")
