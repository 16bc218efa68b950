"""Automatic path migration: a connection goes over to its alternate path. IBA 17.2.8.

A queue pair in MIGRATED sets MigReq in what it sends, in REARM and ARMED it does not. One that is
armed goes over when its peer did, when its owner says so, or when no retry is left on its path.
"""

from rdmawire.nic.event import PathMigrated, PathMigrationFailed
from rdmawire.nic.path import gids_of
from rdmawire.nic.qp import QueuePair
from rdmawire.nic.state import MigrationState
from rdmawire.nic.unseal import Flow


def heard(qp: QueuePair, flow: Flow) -> None:
    """A packet of the peer's says whether it went over."""
    state = qp.attributes.path_mig_state
    if not flow.bth.migreq and state == MigrationState.REARM:
        qp.set_migration(MigrationState.ARMED)
    elif flow.bth.migreq and state == MigrationState.ARMED:
        _follow(qp, flow)


def _follow(qp: QueuePair, flow: Flow) -> None:
    """Go where the peer went, if that is the alternate path. IBA 17.2.8.1.3."""
    alternate = qp.attributes.alt_ah
    source, destination = gids_of(flow.headers)
    if alternate is not None and (alternate.sgid, alternate.dgid) == (destination, source):
        migrate(qp)
        return
    failed = PathMigrationFailed(qp.number)
    if failed not in qp.device.events:  # every packet of the peer's asks
        qp.device.events.append(failed)


def goes_over(qp: QueuePair, wanted: MigrationState) -> bool:
    """Whether going to a migration state means the alternate path. IBA 17.2.8.1.4."""
    armed = qp.migrating and qp.attributes.path_mig_state == MigrationState.ARMED
    return armed and wanted == MigrationState.MIGRATED and qp.attributes.alt_ah is not None


def migrate(qp: QueuePair) -> None:
    """Take the alternate path for the path, with its own timeout and P_Key."""
    now = qp.attributes
    qp.attributes = now._replace(
        ah=now.alt_ah,
        pkey_index=now.alt_pkey_index,
        port_num=now.alt_port_num,
        timeout=now.alt_timeout,
    )
    qp.set_migration(MigrationState.MIGRATED)
    qp.device.events.append(PathMigrated(qp.number))


def escaped(qp: QueuePair) -> bool:
    """Whether a queue pair without retries had another path to go over to, with all of them."""
    if not goes_over(qp, MigrationState.MIGRATED):
        return False
    migrate(qp)
    qp.patience.refill()
    return True
