"""What a capture does not show: what the relay did to frames, and what the programs asked for."""

from getopt import gnu_getopt
from shlex import split
from typing import NamedTuple

from rdmawire.verbs.enums import WCStatus
from tests.ib.replay.conversation import Side

LOST: dict[str, frozenset[int]] = {
    "rxe61_loss_ack": frozenset({12}),
    "rxe61_loss_atomic_resp": frozenset({11}),
    "rxe61_loss_read_req": frozenset({10}),
    "rxe61_loss_read_resp": frozenset({14}),
    "rxe61_loss_req_last": frozenset({17}),
    "rxe61_loss_req_middle": frozenset({13}),
    "rxe61_retry_exceeded": frozenset({11, 12, 13}),
}
"""Frames that the relay wrote down and then dropped."""

TWICE: dict[str, frozenset[int]] = {"rxe61_dup_req": frozenset({10, 14, 18, 23})}
"""Frames that the relay wrote down once and handed on twice."""

_S = WCStatus
SENT: dict[str, tuple[WCStatus, ...]] = {
    "rxe61_err_badrkey_read": (_S.REM_ACCESS_ERR,),
    "rxe61_err_badrkey_write": (_S.SUCCESS, _S.REM_ACCESS_ERR),
    "rxe61_err_oob_write": (_S.REM_ACCESS_ERR,),
    "rxe61_err_send_too_long": (_S.REM_OP_ERR,),
    "rxe61_retry_exceeded": (_S.RETRY_EXC_ERR,),
    "rxe61_rnr_exceeded": (_S.RNR_RETRY_EXC_ERR,),
    "rxe61_vt_rc_sendinv": (_S.SUCCESS, _S.SUCCESS),  # and one that never ends
}
"""How the client's work ended where it did not all succeed, as its program printed it."""

RECEIVED: dict[str, tuple[WCStatus, ...]] = {
    "rxe61_err_badrkey_read": (),
    "rxe61_err_badrkey_write": (),
    "rxe61_err_oob_write": (),
    "rxe61_err_send_too_long": (_S.LOC_QP_OP_ERR,),
    "rxe61_vt_rc_sendinv": (_S.SUCCESS, _S.REM_INV_REQ_ERR),
}
"""How the server's receives ended before the rest was flushed: its queue pair had failed."""


class Options(NamedTuple):
    """What one end's program asked of its queue pairs. The defaults are those of all of them."""

    timeout: int = 14
    retry_cnt: int = 7
    rnr_retry: int = 7
    min_rnr_timer: int = 12
    max_rd_atomic: int = 16
    receive_length: int = 1 << 15


_VT = {
    "-T": "timeout",
    "-Y": "retry_cnt",
    "-y": "rnr_retry",
    "-R": "min_rnr_timer",
    "-l": "receive_length",
}
_VT_OPTIONS = "sd:g:m:t:n:l:p:R:y:Y:T:q:D:kc"
_VT_DEFAULTS = Options(max_rd_atomic=4, receive_length=8192)


def options(side: Side) -> Options:
    """What stands in the command of this end."""
    program, *arguments = split(side.command)
    if program != "vt":
        return Options()
    given, _ = gnu_getopt(arguments, _VT_OPTIONS)
    numbers = {_VT[name]: int(value) for name, value in given if name in _VT}
    return _VT_DEFAULTS._replace(**numbers)
