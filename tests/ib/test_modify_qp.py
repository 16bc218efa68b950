"""Every state, with every state, with every attribute: a transition or a refusal that says why.

The tables here go by attribute, those of the code by transition; both come from ibv_modify_qp(3)
and from what Linux' ib_core takes.
"""

from collections.abc import Iterator
from errno import errorcode
from functools import reduce
from operator import or_

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import VerbsError
from rdmawire.verbs.ah import AddressHandle
from rdmawire.verbs.enums import QPState, QPType
from rdmawire.verbs.qp_attr import (
    FIELDS,
    QP_TRANSITIONS,
    QPAttributes,
    QPAttrMask,
    check_modify,
    states_of,
)

M = QPAttrMask
ALL = QPAttrMask(sum(FIELDS))
HANDLE = AddressHandle(dmac=bytes(6), dgid=bytes(16), sgid=bytes(16))

LETTERS = {"r": QPState.RESET, "i": QPState.INIT, "R": QPState.RTR, "S": QPState.RTS}
LETTERS |= {"D": QPState.SQD, "E": QPState.SQE}

# The arrows of IBA 10.3.1, but for those to RESET, those to ERR, and SQE to RTS.
DRAWN = "ri ii iR RS SS SD DS DD"

CONNECTED = {
    M.EN_SQD_ASYNC_NOTIFY: "SD",
    M.PKEY_INDEX: "ri! ii iR DD",
    M.AV: "iR! DD",
    M.PATH_MTU: "iR!",
    M.RQ_PSN: "iR!",
    M.DEST_QPN: "iR!",
    M.SQ_PSN: "RS!",
    M.ALT_PATH: "iR RS SS DS DD",
    M.PATH_MIG_STATE: "RS SS DS DD",
}
RELIABLE = {
    **CONNECTED,
    M.CUR_STATE: "RS SS DS",
    M.ACCESS_FLAGS: "ri! ii iR RS SS DS DD",
    M.PORT: "ri! ii DD",
    M.TIMEOUT: "RS! DD",
}
REQUESTER = {M.RETRY_CNT: "RS! DD", M.RNR_RETRY: "RS! DD", M.MAX_QP_RD_ATOMIC: "RS! DD"}
RESPONDER = {M.MIN_RNR_TIMER: "iR! RS SS DS DD", M.MAX_DEST_RD_ATOMIC: "iR! DD"}

# Where each attribute may be given; with "!" it must.
PLACES: dict[QPType, dict[QPAttrMask, str]] = {
    QPType.RC: {**RELIABLE, **REQUESTER, **RESPONDER},
    QPType.XRC_INI: {**RELIABLE, **REQUESTER},
    QPType.XRC_TGT: {**RELIABLE, **RESPONDER},
    QPType.UC: {
        **CONNECTED,
        M.CUR_STATE: "RS SS DS ES",
        M.ACCESS_FLAGS: "ri! ii iR RS SS DS DD ES",
        M.PORT: "ri! ii",
    },
    QPType.UD: {
        M.CUR_STATE: "RS SS DS ES",
        M.EN_SQD_ASYNC_NOTIFY: "SD",
        M.PKEY_INDEX: "ri! ii iR DD",
        M.PORT: "ri! ii",
        M.QKEY: "ri! ii iR RS SS DS DD ES",
        M.SQ_PSN: "RS!",
    },
    QPType.RAW_PACKET: {M.PORT: "ri!", M.RATE_LIMIT: "RS SS"},
}

# ibv_modify_qp(3), the minimum for RESET to INIT to RTR to RTS; IBV_QP_STATE is always there.
MAN_PAGE = {
    QPType.UD: ("PKEY_INDEX PORT QKEY", "", "SQ_PSN"),
    QPType.UC: ("PKEY_INDEX PORT ACCESS_FLAGS", "AV PATH_MTU DEST_QPN RQ_PSN", "SQ_PSN"),
    QPType.RC: (
        "PKEY_INDEX PORT ACCESS_FLAGS",
        "AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER",
        "SQ_PSN MAX_QP_RD_ATOMIC RETRY_CNT RNR_RETRY TIMEOUT",
    ),
    QPType.RAW_PACKET: ("PORT", "", ""),
}
STEPS = (QPState.RESET, QPState.INIT, QPState.RTR, QPState.RTS)

types = pytest.mark.parametrize("qp_type", QPType, ids=lambda qp_type: qp_type.name)


def ways(qp_type: QPType) -> set[tuple[QPState, QPState]]:
    """The transitions that there are, as IBA 10.3.1 draws them."""
    unreliable = qp_type in (QPType.UC, QPType.UD, QPType.RAW_PACKET)
    states = set(QPState) - (set() if unreliable else {QPState.SQE})
    drawn = DRAWN + " ES" * unreliable
    return (
        {(LETTERS[way[0]], LETTERS[way[1]]) for way in drawn.split()}
        | {(start, QPState.RESET) for start in states}
        | {(start, QPState.ERR) for start in states - {QPState.RESET}}
    )


def wanted(qp_type: QPType, start: QPState, end: QPState) -> tuple[QPAttrMask, QPAttrMask]:
    """Attributes that a transition must have, and all that it may have."""
    required, allowed = M(0), M.STATE
    for bit, places in PLACES[qp_type].items():
        for place in places.split():
            if (LETTERS[place[0]], LETTERS[place[1]]) == (start, end):
                allowed |= bit
                required |= bit if place.endswith("!") else M(0)
    return required, allowed


def attempt(qp_type: QPType, start: QPState, end: QPState, mask: QPAttrMask) -> str:
    """What is said against it; nothing when it is done."""
    attributes = QPAttributes(qp_state=end, cur_qp_state=start, ah=HANDLE, alt_ah=HANDLE)
    try:
        assert check_modify(qp_type, start, attributes, mask) is end
    except VerbsError as error:
        return f"{error.reason} [{errorcode[error.errno]}]"
    return ""


def masks(required: QPAttrMask, allowed: QPAttrMask) -> Iterator[QPAttrMask]:
    """The least and the most that may be given, and each with every attribute more or less."""
    for mask in (required | M.STATE, allowed | M.STATE):
        yield mask
        yield from (mask ^ bit for bit in QPAttrMask if bit != M.STATE)


def expected(qp_type: QPType, start: QPState, end: QPState, mask: QPAttrMask) -> list[str]:
    """What a refusal has to name; nothing where there is none."""
    if (start, end) not in ways(qp_type):
        follow = ", ".join(state.name for state in QPState if (start, state) in ways(qp_type))
        return [f"from {start.name} to {end.name} of {qp_type.name}", follow or "nowhere"]
    required, allowed = wanted(qp_type, start, end)
    missing = [field for bit in required & ~mask for field in FIELDS[bit]]
    if missing:
        return [f"{', '.join(missing)} missing from {start.name} to {end.name} of {qp_type.name}"]
    for bit in mask & ~allowed:
        return [f"{', '.join(FIELDS[bit])} not allowed from {start.name} to {end.name}"]
    return []


@types
@pytest.mark.parametrize("start", QPState, ids=lambda state: state.name)
@pytest.mark.parametrize("end", QPState, ids=lambda state: state.name)
def test_state_by_state_by_attribute(qp_type: QPType, start: QPState, end: QPState) -> None:
    for mask in masks(*wanted(qp_type, start, end)):
        found = attempt(qp_type, start, end, mask)
        said = expected(qp_type, start, end, mask)
        assert bool(found) == bool(said), mask
        assert all(part in found for part in said), mask
        assert not found or found.endswith("[EINVAL]"), mask


@given(
    st.sampled_from(QPType), st.sampled_from(QPState), st.sampled_from(QPState), st.integers(0, ALL)
)
def test_any_mask(qp_type: QPType, start: QPState, end: QPState, number: int) -> None:
    mask = M(number & ALL) | M.STATE
    found = attempt(qp_type, start, end, mask)
    assert all(part in found for part in expected(qp_type, start, end, mask))
    assert bool(found) == bool(expected(qp_type, start, end, mask))


@types
def test_the_table_has_no_other_rows(qp_type: QPType) -> None:
    assert {(start, end) for of, start, end in QP_TRANSITIONS if of == qp_type} == ways(qp_type)
    assert set(states_of(qp_type)) == {state for way in ways(qp_type) for state in way}


@pytest.mark.parametrize("qp_type", MAN_PAGE, ids=lambda qp_type: qp_type.name)
@pytest.mark.parametrize("step", range(3))
def test_the_manual_pages_lists_are_what_is_needed(qp_type: QPType, step: int) -> None:
    listed = reduce(or_, (QPAttrMask[name] for name in MAN_PAGE[qp_type][step].split()), M(0))
    assert QP_TRANSITIONS[qp_type, STEPS[step], STEPS[step + 1]].required == listed


@types
@pytest.mark.parametrize("state", QPState, ids=lambda state: state.name)
def test_without_a_state_the_state_stays(qp_type: QPType, state: QPState) -> None:
    stays = (state, state) in ways(qp_type)
    if stays:
        assert check_modify(qp_type, state, QPAttributes(), M(0)) is state
    else:
        with pytest.raises(VerbsError, match=f"no transition from {state.name} to {state.name}"):
            check_modify(qp_type, state, QPAttributes(), M(0))


def test_a_refusal_names_the_transitions_that_take_an_attribute() -> None:
    said = attempt(QPType.RC, QPState.RTS, QPState.RTS, M.STATE | M.SQ_PSN)
    assert said == "sq_psn not allowed from RTS to RTS of RC, only from RTR to RTS [EINVAL]"
    said = attempt(QPType.UD, QPState.RTR, QPState.RTS, M.STATE | M.SQ_PSN | M.PATH_MTU)
    assert said == "path_mtu not allowed from RTR to RTS of UD, nor anywhere else [EINVAL]"


def test_bits_that_mean_nothing_are_refused() -> None:
    with pytest.raises(VerbsError, match=r"mask 0x200001 has unknown bits 0x200000"):
        check_modify(QPType.RC, QPState.RTS, QPAttributes(), M.STATE | M(1 << 21))


@pytest.mark.parametrize("claimed", QPState, ids=lambda state: state.name)
def test_the_state_that_is_assumed_must_be_the_state_found(claimed: QPState) -> None:
    attributes = QPAttributes(qp_state=QPState.RTS, cur_qp_state=claimed)
    mask = M.STATE | M.CUR_STATE
    if claimed == QPState.SQE:
        assert check_modify(QPType.UD, QPState.SQE, attributes, mask) is QPState.RTS
    else:
        with pytest.raises(VerbsError, match=f"cur_qp_state is {claimed.name}, .* SQE"):
            check_modify(QPType.UD, QPState.SQE, attributes, mask)


@pytest.mark.parametrize("end", [QPState.RESET, QPState.RTS, QPState.SQD, QPState.ERR])
def test_a_queue_that_drains_can_only_be_given_up(end: QPState) -> None:
    attributes = QPAttributes(qp_state=end)
    assert check_modify(QPType.RC, QPState.SQD, attributes, M.STATE) is end
    if end in (QPState.RTS, QPState.SQD):
        with pytest.raises(VerbsError, match="not drained"):
            check_modify(QPType.RC, QPState.SQD, attributes, M.STATE, draining=True)
    else:
        assert check_modify(QPType.RC, QPState.SQD, attributes, M.STATE, draining=True) is end


def test_values_are_checked_with_the_mask() -> None:
    attributes = QPAttributes(qp_state=QPState.RTS, sq_psn=1 << 24)
    with pytest.raises(VerbsError, match="sq_psn: 16777216"):
        check_modify(QPType.UD, QPState.RTR, attributes, M.STATE | M.SQ_PSN)
