"""The opcode table: complete, without doubles, and each row what the standard says."""

import pytest

from rdmawire.wire.ib import CREDITS, RNR_TIMER_NS
from rdmawire.wire.opcode import (
    OPERATIONS,
    RULES,
    SHAPES,
    Opcode,
    Operation,
    Part,
    Payload,
    Service,
    is_vendor,
    opcode_word,
)


def test_the_enum_lists_exactly_what_the_services_have() -> None:
    product = {
        f"{service.name}_{operation.name}": service << 5 | operation
        for service, operations in OPERATIONS.items()
        for operation in operations
    }
    assert {opcode.name: int(opcode) for opcode in Opcode} == product | {"CNP": 0x81}
    assert set(SHAPES) == set(Opcode)


def test_every_operation_has_a_rule_and_a_service() -> None:
    assert set(RULES) == set(Operation)
    assert set().union(*OPERATIONS.values()) == set(Operation)


# IBA 9.2.1, the table of opcodes: headers after the BTH.
KNOWN = {
    0x00: ("RC_SEND_FIRST", ()),
    0x05: ("RC_SEND_ONLY_WITH_IMMEDIATE", ("immdt",)),
    0x0B: ("RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE", ("reth", "immdt")),
    0x0C: ("RC_RDMA_READ_REQUEST", ("reth",)),
    0x0E: ("RC_RDMA_READ_RESPONSE_MIDDLE", ()),
    0x11: ("RC_ACKNOWLEDGE", ("aeth",)),
    0x12: ("RC_ATOMIC_ACKNOWLEDGE", ("aeth", "atomicacketh")),
    0x13: ("RC_CMP_SWAP", ("atomiceth",)),
    0x17: ("RC_SEND_ONLY_WITH_INVALIDATE", ("ieth",)),
    0x1C: ("RC_FLUSH", ("feth", "reth")),
    0x1D: ("RC_ATOMIC_WRITE", ("reth",)),
    0x2A: ("UC_RDMA_WRITE_ONLY", ("reth",)),
    0x44: ("RD_SEND_ONLY", ("rdeth", "deth")),
    0x4C: ("RD_RDMA_READ_REQUEST", ("rdeth", "deth", "reth")),
    0x51: ("RD_ACKNOWLEDGE", ("rdeth", "aeth")),
    0x54: ("RD_FETCH_ADD", ("rdeth", "deth", "atomiceth")),
    0x55: ("RD_RESYNC", ("rdeth", "deth")),
    0x64: ("UD_SEND_ONLY", ("deth",)),
    0x65: ("UD_SEND_ONLY_WITH_IMMEDIATE", ("deth", "immdt")),
    0x81: ("CNP", ("cnp",)),
    0xA4: ("XRC_SEND_ONLY", ("xrceth",)),
    0xAC: ("XRC_RDMA_READ_REQUEST", ("xrceth", "reth")),
    0xB1: ("XRC_ACKNOWLEDGE", ("aeth",)),
}


@pytest.mark.parametrize(("opcode", "name", "headers"), [(k, *v) for k, v in KNOWN.items()])
def test_known_opcodes(opcode: int, name: str, headers: tuple[str, ...]) -> None:
    shape = SHAPES[opcode]
    assert (shape.name, shape.headers) == (name, headers)
    assert opcode_word(opcode) == name


def test_what_is_in_no_table_is_a_vendors_or_reserved() -> None:
    for opcode in set(range(256)) - set(SHAPES):
        assert is_vendor(opcode) == (opcode >= 0xC0)
        assert opcode_word(opcode) == ("VENDOR" if opcode >= 0xC0 else "RESERVED")


def test_names_have_part_and_direction() -> None:
    for shape in SHAPES.values():
        words = shape.name.split("_")
        for part in Part:
            if part.name in words:
                assert shape.part is part
        assert shape.response == bool({"RESPONSE", "ACKNOWLEDGE", "CNP"} & set(words))
        if "SEND" in words or ("WRITE" in words and "ATOMIC" not in words):
            assert shape.payload is Payload.ANY
    assert SHAPES[Opcode.RC_ATOMIC_WRITE].payload is Payload.EIGHT
    assert SHAPES[Opcode.UD_SEND_ONLY].service is Service.UD


def test_timer_and_credit_tables() -> None:
    # IBA 9.7.5.2: the RNR NAK timer; IBA 9.7.7.2.2: the credit count.
    assert RNR_TIMER_NS[0] == 655_360_000
    assert RNR_TIMER_NS[1] == 10_000
    assert RNR_TIMER_NS[12] == 640_000
    assert RNR_TIMER_NS[14] == 1_280_000
    assert RNR_TIMER_NS[31] == 491_520_000
    assert len(RNR_TIMER_NS) == 32
    assert CREDITS[:10] == (0, 1, 2, 3, 4, 6, 8, 12, 16, 24)
    assert CREDITS[30] == 32768
    assert len(CREDITS) == 31
