"""The rules that an adapter has unless it is given others, put together from those who apply them.

A module of its own, because the modules below it apply rules without knowing which.
"""

from typing import Final

from rdmawire.ib.completer import RESPONSES
from rdmawire.ib.post_checks import POST_CHECKS
from rdmawire.ib.requester import HEADER_MAKERS
from rdmawire.ib.responder import CNP, MALFORMED, REQUESTS
from rdmawire.ib.retransmit import REFUSALS
from rdmawire.ib.rules import Rules
from rdmawire.ib.service import SERVICES

STANDARD: Final = Rules(
    services=SERVICES,
    requests=REQUESTS,
    malformed=MALFORMED,
    cnp=CNP,
    responses=RESPONSES,
    refusals=REFUSALS,
    post_checks=POST_CHECKS,
    header_makers=HEADER_MAKERS,
)
"""The rules of the standard; what a device does otherwise by its profile is decided in them."""
