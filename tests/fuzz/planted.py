"""Rules with one step replaced, for tests of the fuzzer itself."""

from rdmawire.fuzz.engine_target import EngineTarget
from rdmawire.fuzz.fuzzer import EngineFuzzer, Spec
from rdmawire.ib import checks
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.rules import RequestRule, Rules
from rdmawire.ib.rx_parser import Arrival
from rdmawire.ib.service import Fault
from rdmawire.ib.standard_rules import STANDARD


def _short_writes_pass(qp: QueuePair, role: RequestRule, request: Arrival) -> Fault | None:
    """As check_message_length, without the check that a WRITE is complete."""
    incoming = qp.inbound.incoming
    end = incoming.placed + len(request.payload)
    return role.family.too_long if end > incoming.limit else None


SHORT_WRITES: Rules = STANDARD.with_step(checks.check_message_length, _short_writes_pass)


class ShortWrites(EngineFuzzer):
    """Fuzzes an adapter that does not check that a WRITE is complete."""

    def __init__(self, _: Spec) -> None:
        super().__init__({"kind": "engine"}, EngineTarget(rules=SHORT_WRITES))
