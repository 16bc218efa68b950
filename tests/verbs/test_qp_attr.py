"""Attributes: which bit gives which, and the range of each."""

from dataclasses import replace
from errno import EINVAL
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import VerbsError
from rdmawire.verbs.ah import AddressHandle
from rdmawire.verbs.profile import IBTA, PROFILES, Profile
from rdmawire.verbs.qp_attr import (
    BOUNDS,
    CAP_BOUNDS,
    FIELDS,
    QPAttributes,
    QPAttrMask,
    QPCap,
    check_cap,
    check_values,
    merged,
)

HANDLE = AddressHandle(dmac=bytes(6), dgid=bytes(16), sgid=bytes(16))
# The devices there are, and one whose requesters and responders have limits of their own.
DEVICES = (*PROFILES.values(), replace(IBTA, name="odd", max_qp_rd_atom=5, max_qp_init_rd_atom=6))
PATHS = QPAttributes(ah=HANDLE, alt_ah=HANDLE)
BIT_OF = {field: bit for bit, fields in FIELDS.items() for field in fields}

# ibv_qp_attr_mask of verbs.h, in the order of its bits 0 to 20; bit 25 is RATE_LIMIT.
MASK_BITS = (
    "STATE CUR_STATE EN_SQD_ASYNC_NOTIFY ACCESS_FLAGS PKEY_INDEX PORT QKEY AV PATH_MTU TIMEOUT"
    " RETRY_CNT RNR_RETRY RQ_PSN MAX_QP_RD_ATOMIC ALT_PATH MIN_RNR_TIMER SQ_PSN"
    " MAX_DEST_RD_ATOMIC PATH_MIG_STATE CAP DEST_QPN"
)

# The widths and limits that IBA 11.2.5.2 and the headers give, highest value first.
HIGHEST = {
    **dict.fromkeys(("rq_psn", "sq_psn", "dest_qp_num"), 0xFFFFFF),
    **dict.fromkeys(("qkey", "qp_access_flags", "rate_limit"), 0xFFFFFFFF),
    **dict.fromkeys(("timeout", "alt_timeout", "min_rnr_timer"), 31),
    **dict.fromkeys(("retry_cnt", "rnr_retry"), 7),
    **dict.fromkeys(("qp_state", "cur_qp_state"), 6),
    "path_mig_state": 2,
    "en_sqd_async_notify": 1,
    "path_mtu": 5,
}
LOWEST = {"path_mtu": 1, "port_num": 1, "alt_port_num": 1}


def limits(device: Profile) -> dict[str, int]:
    return {
        **HIGHEST,
        "max_rd_atomic": device.max_qp_init_rd_atom,
        "max_dest_rd_atomic": device.max_qp_rd_atom,
        **dict.fromkeys(("pkey_index", "alt_pkey_index"), device.pkey_tbl_len - 1),
        **dict.fromkeys(("port_num", "alt_port_num"), device.phys_port_cnt),
    }


def given_as(field: str, value: object) -> QPAttributes:
    fields: dict[str, Any] = {field: value}
    return PATHS._replace(**fields)


def test_bits_are_those_of_verbs_h() -> None:
    numbers = {name: 1 << bit for bit, name in enumerate(MASK_BITS.split())}
    assert {bit.name: bit.value for bit in QPAttrMask} == {**numbers, "RATE_LIMIT": 1 << 25}


def test_each_attribute_but_the_one_that_is_only_queried_has_one_bit() -> None:
    assert set(FIELDS) == set(QPAttrMask)
    assert sorted([*BIT_OF, "sq_draining"]) == sorted(QPAttributes._fields)
    assert len(BIT_OF) == sum(map(len, FIELDS.values()))


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
@pytest.mark.parametrize("field", BOUNDS)
def test_every_number_has_a_range(field: str, device: Profile) -> None:
    low, high = LOWEST.get(field, 0), limits(device)[field]
    for value in (low, high):
        check_values(given_as(field, value), BIT_OF[field], device)
    for value in (low - 1, high + 1):
        with pytest.raises(VerbsError, match=rf"^{field}: {value} is not an integer") as caught:
            check_values(given_as(field, value), BIT_OF[field], device)
        assert caught.value.errno == EINVAL


def test_what_is_no_number_has_fields_of_its_own() -> None:
    assert set(BIT_OF) - set(BOUNDS) == {"ah", "alt_ah", "cap"}


@pytest.mark.parametrize("field", BOUNDS)
def test_attributes_outside_the_mask_are_not_looked_at(field: str) -> None:
    check_values(given_as(field, -1), ~BIT_OF[field] & QPAttrMask(sum(FIELDS)))


@pytest.mark.parametrize("field", ["ah", "alt_ah"])
def test_a_path_must_be_given_and_be_right(field: str) -> None:
    with pytest.raises(VerbsError, match=f"^{field} .* there is none"):
        check_values(given_as(field, None), BIT_OF[field])
    with pytest.raises(VerbsError, match="hop_limit: 256"):
        check_values(given_as(field, HANDLE._replace(hop_limit=256)), BIT_OF[field])


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
@pytest.mark.parametrize("field", QPCap._fields)
def test_sizes_end_at_the_devices_limit(field: str, device: Profile) -> None:
    most = {
        **dict.fromkeys(("max_send_wr", "max_recv_wr"), device.max_qp_wr),
        **dict.fromkeys(("max_send_sge", "max_recv_sge"), device.max_sge),
        "max_inline_data": device.max_inline_data,
    }[field]
    assert field in CAP_BOUNDS
    check_cap(QPCap()._replace(**{field: most}), device)
    check_values(given_as("cap", QPCap()._replace(**{field: 0})), QPAttrMask.CAP, device)
    for value in (-1, most + 1):
        with pytest.raises(VerbsError, match=f"^{field}: {value} is not an integer"):
            check_values(
                given_as("cap", QPCap()._replace(**{field: value})), QPAttrMask.CAP, device
            )


@given(st.integers(0, sum(FIELDS)))
def test_merging_takes_what_the_mask_gives_and_nothing_else(number: int) -> None:
    mask = QPAttrMask(number & sum(FIELDS))
    old, new = (QPAttributes(*(f"{age} {name}" for name in QPAttributes._fields)) for age in (0, 1))  # type: ignore[arg-type]
    for name, value in merged(old, new, mask)._asdict().items():
        given_now = name in BIT_OF and bool(BIT_OF[name] & mask)
        assert value == f"{int(given_now)} {name}"


def test_defaults_are_within_the_ranges() -> None:
    check_values(PATHS, QPAttrMask(sum(FIELDS)), IBTA)
