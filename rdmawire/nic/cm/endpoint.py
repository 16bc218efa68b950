"""What becomes of queue pairs when connections come and go. IBA 12.9.2, as rdma_cm does it."""

from errno import EINVAL

from rdmawire.errors import VerbsError
from rdmawire.memory.access import Access
from rdmawire.nic.attribute import QPAttributes, QPAttrMask, check_values
from rdmawire.nic.cm.connection import Connection
from rdmawire.nic.qp import QueuePair
from rdmawire.nic.state import QPState, QPType
from rdmawire.nic.transition import QP_TRANSITIONS
from rdmawire.nic.verbs import Verbs
from rdmawire.wire.management import MTU

_M = QPAttrMask
_READS = Access.REMOTE_READ | Access.REMOTE_ATOMIC | Access.FLUSH_GLOBAL | Access.FLUSH_PERSISTENT
_CONNECTED = (QPType.RC, QPType.UC)
_AT_REST = (QPState.RESET, QPState.INIT)


def check_fit(qp: QueuePair, *, datagrams: bool, uc: bool | None = None) -> None:
    """``VerbsError`` EINVAL for a queue pair of a type that the connection is not for."""
    allowed = (QPType.UD,) if datagrams else _CONNECTED
    if uc is not None:
        allowed = (_CONNECTED[uc],)
    if qp.type not in allowed:
        names = " or ".join(kind.name for kind in allowed)
        raise VerbsError(f"QP {qp.number:#x} is of type {qp.type.name}, not {names}", EINVAL)
    if not datagrams and qp.state not in _AT_REST:
        reason = f"QP {qp.number:#x} is in {qp.state.name}: connections begin in RESET or INIT"
        raise VerbsError(reason, EINVAL)


def bring_up(nic: Verbs, conn: Connection) -> None:
    """To RTS by what was agreed upon; ``VerbsError``, and nothing changed, if that cannot be."""
    qp = conn.qp
    if qp is None:
        raise VerbsError("the connection has no queue pair", EINVAL)
    check_fit(qp, datagrams=False, uc=conn.uc)
    attributes = _attributes(conn)
    _climb(nic, qp, attributes)


def bring_up_datagrams(nic: Verbs, qp: QueuePair, qkey: int) -> None:
    """To RTS with this Q_Key, in the partition it is in, unless its owner saw to that."""
    if qp.state in _AT_REST:
        _climb(nic, qp, QPAttributes(qkey=qkey, pkey_index=qp.attributes.pkey_index))


def take_down(nic: Verbs, conn: Connection) -> None:
    """To ERR, which ends its work; one that its owner reset or destroyed is left alone."""
    qp = conn.qp
    if qp is not None and nic.device.qps.get(qp.number) is qp and qp.state is not QPState.RESET:
        nic.modify_qp(qp, QPAttributes(qp_state=QPState.ERR), _M.STATE)


def _climb(nic: Verbs, qp: QueuePair, attributes: QPAttributes) -> None:
    """By INIT, which is entered anew, as rights and keys are known only now."""
    first = QP_TRANSITIONS[qp.type, QPState.RESET, QPState.INIT].required
    ready = QP_TRANSITIONS[qp.type, QPState.INIT, QPState.RTR].required
    sending = QP_TRANSITIONS[qp.type, QPState.RTR, QPState.RTS].required
    check_values(attributes, first | ready | sending, nic.device.profile)
    steps = ((QPState.INIT, first), (QPState.RTR, ready), (QPState.RTS, sending))
    for state, mask in steps:
        nic.modify_qp(qp, attributes._replace(qp_state=state), mask | _M.STATE)


def _attributes(conn: Connection) -> QPAttributes:
    terms, timeout = conn.terms, conn.offer.timeout
    access = Access.REMOTE_WRITE | (_READS if terms.responder_resources else 0)
    return QPAttributes(
        path_mtu=MTU(terms.path_mtu),
        rq_psn=terms.rq_psn,
        sq_psn=terms.sq_psn,
        dest_qp_num=terms.remote_qpn,
        pkey_index=conn.pkey_index,
        qp_access_flags=access,
        ah=conn.path,
        max_rd_atomic=terms.initiator_depth,
        max_dest_rd_atomic=terms.responder_resources,
        timeout=terms.timeout if timeout is None else timeout,
        retry_cnt=terms.retry_count,
        rnr_retry=terms.rnr_retry_count,
    )


def peer_has_sent(conn: Connection) -> bool:
    """Whether a packet of the peer's came in sequence: it is sure of the connection then."""
    qp = conn.qp
    return qp is not None and (qp.established or qp.inbound.epsn != conn.terms.rq_psn)
