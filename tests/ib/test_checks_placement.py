"""ATOMIC WRITE and FLUSH that say what A19 gives no meaning: refused, and nothing is done."""

import pytest

from rdmawire.verbs.enums import QPState
from rdmawire.wire.ib import FETH, RETH, Nak, Placement, Selectivity
from rdmawire.wire.opcode import Opcode
from tests.ib.stage import FIRST_PSN, Stage, nak_of


@pytest.mark.parametrize("dmalen", [0, 4, 7, 9, 16, 1 << 31])
def test_an_atomic_write_is_of_eight_bytes(dmalen: int) -> None:
    stage = Stage()
    there = stage.server.region
    reth = RETH(there.address, there.rkey, dmalen)
    stage.request(Opcode.RC_ATOMIC_WRITE, reth, payload=b"12345678", psn=FIRST_PSN)
    stage.drive()
    assert nak_of(stage) == (Nak.INVALID_REQUEST, FIRST_PSN)
    assert there.read(8) == bytes(8)
    assert stage.server.qp.state is QPState.ERR


@pytest.mark.parametrize("sel", range(4))
@pytest.mark.parametrize("plt", range(5))
def test_a_flush_asks_for_what_there_is(sel: int, plt: int) -> None:
    stage = Stage()
    there = stage.server.region
    stage.request(
        Opcode.RC_FLUSH,
        FETH(sel=sel, plt=plt),
        RETH(there.address, there.rkey, 8),
        psn=FIRST_PSN,
        ackreq=1,
    )
    stage.drive()
    known = sel in list(Selectivity) and plt in list(Placement)
    if known:
        assert stage.opcodes(stage.server) == [Opcode.RC_RDMA_READ_RESPONSE_ONLY]
    else:
        assert nak_of(stage) == (Nak.INVALID_REQUEST, FIRST_PSN)
