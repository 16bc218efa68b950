"""How queue pairs change state, and what must or may be given with each change.

IBA 10.3.1 and 11.2.5.2, as libibverbs (ibv_modify_qp(3)) and Linux' ib_core know them. Three rules
stand outside the table's rows: every state may go to RESET; every state but RESET to ERR; and a
mask without ``STATE`` asks for the state that there is, so that it needs a row from it to itself.

Where it differs from ib_core: SQE is a state of UC, UD and RAW_PACKET alone (IBA 10.3.1), and
``cur_qp_state`` must be the state found, since nothing here changes it behind its owner's back.
"""

from collections.abc import Iterator
from errno import EINVAL
from typing import NamedTuple

from rdmawire.errors import VerbsError
from rdmawire.memory.argument import check_number
from rdmawire.nic.attribute import QPAttributes, QPAttrMask, check_values, fields_of
from rdmawire.nic.profile import IBTA, Profile
from rdmawire.nic.state import QPState, QPType


class Needs(NamedTuple):
    """The attributes that a transition must have and those that it may have, besides ``STATE``."""

    required: QPAttrMask = QPAttrMask(0)
    optional: QPAttrMask = QPAttrMask(0)


class Row(NamedTuple):
    """A transition of some types of queue pairs."""

    types: tuple[QPType, ...]
    start: QPState
    end: QPState
    needs: Needs = Needs()


_M, _S = QPAttrMask, QPState
_RC, _UC, _UD = (QPType.RC,), (QPType.UC,), (QPType.UD,)
_RAW, _INI, _TGT = (QPType.RAW_PACKET,), (QPType.XRC_INI,), (QPType.XRC_TGT,)
_RELIABLE = _RC + _INI + _TGT
_CONNECTED = _UC + _RELIABLE

_PORT = _M.PKEY_INDEX | _M.PORT
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
    Row(_CONNECTED, _S.RESET, _S.INIT, Needs(_PORT | _M.ACCESS_FLAGS)),
    Row(_UD, _S.RESET, _S.INIT, Needs(_PORT | _M.QKEY)),
    Row(_RAW, _S.RESET, _S.INIT, Needs(_M.PORT)),
    Row(_CONNECTED, _S.INIT, _S.INIT, Needs(_NOTHING, _PORT | _M.ACCESS_FLAGS)),
    Row(_UD, _S.INIT, _S.INIT, Needs(_NOTHING, _PORT | _M.QKEY)),
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
    Row(_RC, _S.SQD, _S.SQD, Needs(_NOTHING, _DRAINED | _M.PORT | _REQUESTER | _RESPONDER)),
    Row(_INI, _S.SQD, _S.SQD, Needs(_NOTHING, _DRAINED | _M.PORT | _REQUESTER)),
    Row(_TGT, _S.SQD, _S.SQD, Needs(_NOTHING, _DRAINED | _M.PORT | _M.TIMEOUT | _RESPONDER)),
    Row(_UD, _S.SQD, _S.SQD, Needs(_NOTHING, _M.PKEY_INDEX | _M.QKEY)),
    Row(_RAW, _S.SQD, _S.SQD),
    Row(_UC, _S.SQE, _S.RTS, Needs(_NOTHING, _M.CUR_STATE | _M.ACCESS_FLAGS)),
    Row(_UD, _S.SQE, _S.RTS, Needs(_NOTHING, _EASY_UD)),
    Row(_RAW, _S.SQE, _S.RTS),
)


def states_of(qp_type: QPType) -> tuple[QPState, ...]:
    """The states that queue pairs of a type know: those that stay reliable have no SQE."""
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
"""Every transition that there is, by type, state found and state wanted."""


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

    ``draining`` says that in SQD there is still something on its way. ``VerbsError`` EINVAL names
    the attribute that is missing, not allowed or out of range, or the states that may follow.
    """
    mask = _known(mask)
    check_values(attributes, mask, profile)
    end = QPState(attributes.qp_state) if mask & _M.STATE else state
    needs = _needs(qp_type, state, end)
    way = f"from {state.name} to {end.name} of {qp_type.name}"
    _check_required(needs, mask, way)
    _check_allowed(needs, mask, way, qp_type)
    _check_found(state, attributes, mask)
    _check_drained(state, end, draining)
    return end


_KNOWN = sum(bit.value for bit in QPAttrMask)


def _known(mask: int) -> QPAttrMask:
    check_number("attr_mask", mask, 0, 0xFFFF_FFFF)
    unknown = int(mask) & ~_KNOWN
    if unknown:
        raise VerbsError(f"attribute mask {int(mask):#x} has unknown bits {unknown:#x}", EINVAL)
    return QPAttrMask(mask)


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
    """The transitions that take an attribute."""
    for (of, start, end), needs in QP_TRANSITIONS.items():
        if of == qp_type and bit & (needs.required | needs.optional):
            yield f"{start.name} to {end.name}"


def _check_found(state: QPState, attributes: QPAttributes, mask: QPAttrMask) -> None:
    if mask & _M.CUR_STATE and attributes.cur_qp_state != state:
        expected = QPState(attributes.cur_qp_state).name
        raise VerbsError(f"cur_qp_state is {expected}, the state found {state.name}", EINVAL)


def _check_drained(state: QPState, end: QPState, draining: bool) -> None:
    if draining and state == _S.SQD and end not in (_S.RESET, _S.ERR):
        raise VerbsError("the send queue is not drained: from SQD only to RESET or ERR", EINVAL)
