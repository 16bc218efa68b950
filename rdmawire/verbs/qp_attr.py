"""Attributes of queue pairs, and the transitions that need them. ibv_modify_qp(3), IBA 11.2.5.2."""

from collections.abc import Iterator
from enum import IntFlag
from errno import EINVAL
from functools import lru_cache
from typing import Any, NamedTuple

from rdmawire.errors import VerbsError
from rdmawire.validate import check_int, check_type
from rdmawire.verbs.ah import AddressHandle, check_address
from rdmawire.verbs.enums import MigrationState, QPState, QPType
from rdmawire.verbs.profile import IBTA, Bounds, Profile, up_to
from rdmawire.wire.management import MTU
from rdmawire.wire.serial import MODULUS


class QPAttrMask(IntFlag):
    """The attributes that are set: the numbers of ibv_qp_attr_mask."""

    STATE = 1 << 0
    CUR_STATE = 1 << 1
    EN_SQD_ASYNC_NOTIFY = 1 << 2
    ACCESS_FLAGS = 1 << 3
    PKEY_INDEX = 1 << 4
    PORT = 1 << 5
    QKEY = 1 << 6
    AV = 1 << 7
    PATH_MTU = 1 << 8
    TIMEOUT = 1 << 9
    RETRY_CNT = 1 << 10
    RNR_RETRY = 1 << 11
    RQ_PSN = 1 << 12
    MAX_QP_RD_ATOMIC = 1 << 13
    ALT_PATH = 1 << 14
    MIN_RNR_TIMER = 1 << 15
    SQ_PSN = 1 << 16
    MAX_DEST_RD_ATOMIC = 1 << 17
    PATH_MIG_STATE = 1 << 18
    CAP = 1 << 19
    DEST_QPN = 1 << 20
    RATE_LIMIT = 1 << 25


class QPCap(NamedTuple):
    """Sizes of a queue pair, as in ibv_qp_cap."""

    max_send_wr: int = 64
    max_recv_wr: int = 64
    max_send_sge: int = 1
    max_recv_sge: int = 1
    max_inline_data: int = 0


class QPAttributes(NamedTuple):
    """The attributes of a queue pair, as in ibv_qp_attr.

    ``timeout`` and ``alt_timeout`` mean 4.096 us times two to their power, 0 no limit (IBA
    9.7.6.1.3); ``min_rnr_timer`` is an index of the profile's wait times; ``rnr_retry`` 7 has no
    limit. ``rate_limit`` is in kbit/s. ``sq_draining`` is read-only.
    """

    qp_state: QPState = QPState.RESET
    cur_qp_state: QPState = QPState.RESET
    path_mtu: MTU = MTU.MTU_1024
    path_mig_state: MigrationState = MigrationState.MIGRATED
    qkey: int = 0
    rq_psn: int = 0
    sq_psn: int = 0
    dest_qp_num: int = 0
    qp_access_flags: int = 0
    cap: QPCap = QPCap()
    ah: AddressHandle | None = None
    alt_ah: AddressHandle | None = None
    pkey_index: int = 0
    alt_pkey_index: int = 0
    en_sqd_async_notify: bool = False
    sq_draining: bool = False
    max_rd_atomic: int = 0
    max_dest_rd_atomic: int = 0
    min_rnr_timer: int = 0
    port_num: int = 1
    timeout: int = 0
    retry_cnt: int = 0
    rnr_retry: int = 0
    alt_port_num: int = 1
    alt_timeout: int = 0
    rate_limit: int = 0


_M = QPAttrMask

FIELDS: dict[QPAttrMask, tuple[str, ...]] = {
    _M.STATE: ("qp_state",),
    _M.CUR_STATE: ("cur_qp_state",),
    _M.EN_SQD_ASYNC_NOTIFY: ("en_sqd_async_notify",),
    _M.ACCESS_FLAGS: ("qp_access_flags",),
    _M.PKEY_INDEX: ("pkey_index",),
    _M.PORT: ("port_num",),
    _M.QKEY: ("qkey",),
    _M.AV: ("ah",),
    _M.PATH_MTU: ("path_mtu",),
    _M.TIMEOUT: ("timeout",),
    _M.RETRY_CNT: ("retry_cnt",),
    _M.RNR_RETRY: ("rnr_retry",),
    _M.RQ_PSN: ("rq_psn",),
    _M.MAX_QP_RD_ATOMIC: ("max_rd_atomic",),
    _M.ALT_PATH: ("alt_ah", "alt_pkey_index", "alt_port_num", "alt_timeout"),
    _M.MIN_RNR_TIMER: ("min_rnr_timer",),
    _M.SQ_PSN: ("sq_psn",),
    _M.MAX_DEST_RD_ATOMIC: ("max_dest_rd_atomic",),
    _M.PATH_MIG_STATE: ("path_mig_state",),
    _M.CAP: ("cap",),
    _M.DEST_QPN: ("dest_qp_num",),
    _M.RATE_LIMIT: ("rate_limit",),
}
"""The attributes of each bit of the mask."""


_BITS_3, _BITS_5, _BITS_24, _BITS_32 = up_to(7), up_to(31), up_to(MODULUS - 1), up_to(0xFFFF_FFFF)
_PKEY_INDEX = Bounds(0, lambda profile: profile.pkey_tbl_len - 1)
_PORT = Bounds(1, lambda profile: profile.phys_port_cnt)

BOUNDS: dict[str, Bounds] = {
    "qp_state": up_to(QPState.ERR)._replace(words=QPState),
    "cur_qp_state": up_to(QPState.ERR)._replace(words=QPState),
    "en_sqd_async_notify": up_to(1),
    "qp_access_flags": _BITS_32,
    "pkey_index": _PKEY_INDEX,
    "port_num": _PORT,
    "qkey": _BITS_32,
    "path_mtu": Bounds(MTU.MTU_256, lambda profile: profile.max_mtu, MTU),
    "timeout": _BITS_5,
    "retry_cnt": _BITS_3,
    "rnr_retry": _BITS_3,
    "rq_psn": _BITS_24,
    "max_rd_atomic": Bounds(0, lambda profile: profile.max_qp_init_rd_atom),
    "alt_pkey_index": _PKEY_INDEX,
    "alt_port_num": _PORT,
    "alt_timeout": _BITS_5,
    "min_rnr_timer": _BITS_5,
    "sq_psn": _BITS_24,
    "max_dest_rd_atomic": Bounds(0, lambda profile: profile.max_qp_rd_atom),
    "path_mig_state": up_to(MigrationState.ARMED)._replace(words=MigrationState),
    "dest_qp_num": _BITS_24,
    "rate_limit": _BITS_32,
}
"""The range of each numeric attribute; the others have checks of their own."""

CAP_BOUNDS: dict[str, Bounds] = {
    "max_send_wr": Bounds(0, lambda profile: profile.max_qp_wr),
    "max_recv_wr": Bounds(0, lambda profile: profile.max_qp_wr),
    "max_send_sge": Bounds(0, lambda profile: profile.max_sge),
    "max_recv_sge": Bounds(0, lambda profile: profile.max_sge),
    "max_inline_data": Bounds(0, lambda profile: profile.max_inline_data),
}
"""The range of each size."""


@lru_cache(maxsize=1024)
def fields_of(mask: QPAttrMask) -> tuple[str, ...]:
    """The attributes that a mask selects."""
    return tuple(field for bit, fields in FIELDS.items() if bit & mask for field in fields)


@lru_cache(maxsize=1024)
def _places_of(mask: QPAttrMask) -> dict[str, int]:
    """The attributes that a mask selects, with the place of each."""
    return {field: QPAttributes._fields.index(field) for field in fields_of(mask)}


def merged(old: QPAttributes, new: QPAttributes, mask: QPAttrMask) -> QPAttributes:
    """``old`` with those attributes of ``new`` that the mask selects."""
    values = list(old)
    for place in _places_of(mask).values():
        values[place] = new[place]
    return QPAttributes._make(values)


def check_values(attributes: QPAttributes, mask: QPAttrMask, profile: Profile = IBTA) -> None:
    """``VerbsError`` EINVAL for an attribute in the mask that is out of range."""
    check_type("attr", attributes, QPAttributes)
    for field, place in _places_of(mask).items():
        value: Any = attributes[place]
        bounds = BOUNDS.get(field)
        if bounds is not None:
            if not isinstance(value, int) or not bounds.low <= value <= bounds.high(profile):
                bounds.check(field, value, profile)
        elif field == "cap":
            check_cap(value, profile)
        else:
            _check_path(field, value, profile)


def check_cap(cap: QPCap, profile: Profile = IBTA) -> None:
    """``VerbsError`` EINVAL for a size beyond the profile's limit. ibv_create_qp(3)."""
    check_type("cap", cap, QPCap)
    for field, bounds in CAP_BOUNDS.items():
        bounds.check(field, getattr(cap, field), profile)


def _check_path(field: str, handle: AddressHandle | None, profile: Profile) -> None:
    if handle is None:
        raise VerbsError(f"{field} is announced by the mask, but there is none", EINVAL)
    check_address(handle, profile)


class Needs(NamedTuple):
    """The attributes that a transition requires and those that it allows, besides ``STATE``."""

    required: QPAttrMask = QPAttrMask(0)
    optional: QPAttrMask = QPAttrMask(0)


class Row(NamedTuple):
    """A transition of some types of queue pairs."""

    types: tuple[QPType, ...]
    start: QPState
    end: QPState
    needs: Needs = Needs()


_S = QPState
_RC, _UC, _UD = (QPType.RC,), (QPType.UC,), (QPType.UD,)
_RAW, _INI, _TGT = (QPType.RAW_PACKET,), (QPType.XRC_INI,), (QPType.XRC_TGT,)
_RELIABLE = _RC + _INI + _TGT
_CONNECTED = _UC + _RELIABLE

_PKEY_AND_PORT = _M.PKEY_INDEX | _M.PORT
_PATH = _M.AV | _M.PATH_MTU | _M.DEST_QPN | _M.RQ_PSN
_RESPONDER = _M.MAX_DEST_RD_ATOMIC | _M.MIN_RNR_TIMER
_REQUESTER = _M.TIMEOUT | _M.RETRY_CNT | _M.RNR_RETRY | _M.MAX_QP_RD_ATOMIC
_MIGRATION = _M.ALT_PATH | _M.PATH_MIG_STATE
_EASY = _M.CUR_STATE | _M.ACCESS_FLAGS | _MIGRATION
_EASY_UD = _M.CUR_STATE | _M.QKEY
_EARLY = _M.ALT_PATH | _M.ACCESS_FLAGS | _M.PKEY_INDEX
_DRAINED = _M.AV | _MIGRATION | _M.ACCESS_FLAGS | _M.PKEY_INDEX
_NOTHING = _M(0)

_ROWS = (
    Row(_CONNECTED, _S.RESET, _S.INIT, Needs(_PKEY_AND_PORT | _M.ACCESS_FLAGS)),
    Row(_UD, _S.RESET, _S.INIT, Needs(_PKEY_AND_PORT | _M.QKEY)),
    Row(_RAW, _S.RESET, _S.INIT, Needs(_M.PORT)),
    Row(_CONNECTED, _S.INIT, _S.INIT, Needs(_NOTHING, _PKEY_AND_PORT | _M.ACCESS_FLAGS)),
    Row(_UD, _S.INIT, _S.INIT, Needs(_NOTHING, _PKEY_AND_PORT | _M.QKEY)),
    Row(_RAW, _S.INIT, _S.INIT),
    Row(_UC + _INI, _S.INIT, _S.RTR, Needs(_PATH, _EARLY)),
    Row(_RC + _TGT, _S.INIT, _S.RTR, Needs(_PATH | _RESPONDER, _EARLY)),
    Row(_UD, _S.INIT, _S.RTR, Needs(_NOTHING, _M.PKEY_INDEX | _M.QKEY)),
    Row(_RAW, _S.INIT, _S.RTR),
    Row(_UC, _S.RTR, _S.RTS, Needs(_M.SQ_PSN, _EASY)),
    Row(_RC, _S.RTR, _S.RTS, Needs(_M.SQ_PSN | _REQUESTER, _EASY | _M.MIN_RNR_TIMER)),
    Row(_INI, _S.RTR, _S.RTS, Needs(_M.SQ_PSN | _REQUESTER, _EASY)),
    Row(_TGT, _S.RTR, _S.RTS, Needs(_M.SQ_PSN | _M.TIMEOUT, _EASY | _M.MIN_RNR_TIMER)),
    Row(_UD, _S.RTR, _S.RTS, Needs(_M.SQ_PSN, _EASY_UD)),
    Row(_RAW, _S.RTR, _S.RTS, Needs(_NOTHING, _M.RATE_LIMIT)),
    Row(_UC + _INI, _S.RTS, _S.RTS, Needs(_NOTHING, _EASY)),
    Row(_RC + _TGT, _S.RTS, _S.RTS, Needs(_NOTHING, _EASY | _M.MIN_RNR_TIMER)),
    Row(_UD, _S.RTS, _S.RTS, Needs(_NOTHING, _EASY_UD)),
    Row(_RAW, _S.RTS, _S.RTS, Needs(_NOTHING, _M.RATE_LIMIT)),
    Row(_CONNECTED + _UD, _S.RTS, _S.SQD, Needs(_NOTHING, _M.EN_SQD_ASYNC_NOTIFY)),
    Row(_RAW, _S.RTS, _S.SQD),
    Row(_UC + _INI, _S.SQD, _S.RTS, Needs(_NOTHING, _EASY)),
    Row(_RC + _TGT, _S.SQD, _S.RTS, Needs(_NOTHING, _EASY | _M.MIN_RNR_TIMER)),
    Row(_UD, _S.SQD, _S.RTS, Needs(_NOTHING, _EASY_UD)),
    Row(_RAW, _S.SQD, _S.RTS),
    Row(_UC, _S.SQD, _S.SQD, Needs(_NOTHING, _DRAINED)),
    Row(
        _RC,
        _S.SQD,
        _S.SQD,
        Needs(_NOTHING, _DRAINED | _M.PORT | _REQUESTER | _RESPONDER),
    ),
    Row(_INI, _S.SQD, _S.SQD, Needs(_NOTHING, _DRAINED | _M.PORT | _REQUESTER)),
    Row(
        _TGT,
        _S.SQD,
        _S.SQD,
        Needs(_NOTHING, _DRAINED | _M.PORT | _M.TIMEOUT | _RESPONDER),
    ),
    Row(_UD, _S.SQD, _S.SQD, Needs(_NOTHING, _M.PKEY_INDEX | _M.QKEY)),
    Row(_RAW, _S.SQD, _S.SQD),
    Row(_UC, _S.SQE, _S.RTS, Needs(_NOTHING, _M.CUR_STATE | _M.ACCESS_FLAGS)),
    Row(_UD, _S.SQE, _S.RTS, Needs(_NOTHING, _EASY_UD)),
    Row(_RAW, _S.SQE, _S.RTS),
)


def states_of(qp_type: QPType) -> tuple[QPState, ...]:
    """The states of a queue pair type; reliable types have no SQE."""
    return tuple(state for state in QPState if state != _S.SQE or qp_type not in _RELIABLE)


def _rows() -> Iterator[tuple[tuple[QPType, QPState, QPState], Needs]]:
    for types, start, end, needs in _ROWS:
        for qp_type in types:
            yield (qp_type, start, end), needs
    for qp_type in QPType:
        for start in states_of(qp_type):
            yield (qp_type, start, _S.RESET), Needs()
            if start != _S.RESET:
                yield (qp_type, start, _S.ERR), Needs()


QP_TRANSITIONS: dict[tuple[QPType, QPState, QPState], Needs] = dict(_rows())
"""All valid transitions, by type, present state and new state."""


def check_modify(
    qp_type: QPType,
    state: QPState,
    attributes: QPAttributes,
    mask: QPAttrMask,
    profile: Profile = IBTA,
    *,
    draining: bool = False,
) -> QPState:
    """The state that a queue pair in ``state`` has after ibv_modify_qp(3) with these attributes.

    ``draining`` says that in SQD work is still in flight. ``VerbsError`` EINVAL names the attribute
    that is missing, not allowed or out of range, or the states that may follow.
    """
    mask = _known(mask)
    check_values(attributes, mask, profile)
    bits = int(mask)
    end = _STATES[attributes.qp_state] if bits & _STATE else state
    _check_transition(qp_type, state, end, mask)
    if bits & _CUR_STATE:
        _check_found(state, attributes)
    _check_drained(state, end, draining)
    return end


_KNOWN = sum(bit.value for bit in QPAttrMask)
# As numbers: an operation of a flag takes much longer.
_STATE = _M.STATE.value
_STATES = (*QPState,)
_CUR_STATE = _M.CUR_STATE.value


def _known(mask: int) -> QPAttrMask:
    check_int("attr_mask", mask, 0, 0xFFFF_FFFF)
    unknown = int(mask) & ~_KNOWN
    if unknown:
        raise VerbsError(f"attribute mask {int(mask):#x} has unknown bits {unknown:#x}", EINVAL)
    return mask if isinstance(mask, QPAttrMask) else QPAttrMask(mask)


def _needs(qp_type: QPType, state: QPState, end: QPState) -> Needs:
    needs = QP_TRANSITIONS.get((qp_type, state, end))
    if needs is None:
        ends = ", ".join(e.name for e in QPState if (qp_type, state, e) in QP_TRANSITIONS)
        raise VerbsError(
            f"no transition from {state.name} to {end.name} of {qp_type.name}:"
            f" from there it goes to {ends or 'nowhere'}",
            EINVAL,
        )
    return needs


@lru_cache(maxsize=1024)
def _check_transition(qp_type: QPType, state: QPState, end: QPState, mask: QPAttrMask) -> None:
    """``VerbsError`` for a transition that there is not, or that needs other attributes."""
    needs = _needs(qp_type, state, end)
    way = f"from {state.name} to {end.name} of {qp_type.name}"
    _check_required(needs, mask, way)
    _check_allowed(needs, mask, way, qp_type)


def _check_required(needs: Needs, mask: QPAttrMask, way: str) -> None:
    missing = ", ".join(fields_of(needs.required & ~mask))
    if missing:
        required = ", ".join(fields_of(needs.required))
        raise VerbsError(f"{missing} missing {way}, which needs {required}", EINVAL)


def _check_allowed(needs: Needs, mask: QPAttrMask, way: str, qp_type: QPType) -> None:
    for bit in mask & ~(needs.required | needs.optional | _M.STATE):
        places = ", ".join(_places(qp_type, bit))
        instead = f"only from {places}" if places else "nor anywhere else"
        raise VerbsError(f"{', '.join(fields_of(bit))} not allowed {way}, {instead}", EINVAL)


def _places(qp_type: QPType, bit: QPAttrMask) -> Iterator[str]:
    """The transitions that allow an attribute."""
    for (of, start, end), needs in QP_TRANSITIONS.items():
        if of == qp_type and bit & (needs.required | needs.optional):
            yield f"{start.name} to {end.name}"


def _check_found(state: QPState, attributes: QPAttributes) -> None:
    if attributes.cur_qp_state != state:
        expected = QPState(attributes.cur_qp_state).name
        raise VerbsError(f"cur_qp_state is {expected}, the state found {state.name}", EINVAL)


def _check_drained(state: QPState, end: QPState, draining: bool) -> None:
    if draining and state == _S.SQD and end not in (_S.RESET, _S.ERR):
        raise VerbsError("the send queue is not drained: from SQD only to RESET or ERR", EINVAL)
