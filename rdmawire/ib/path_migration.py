"""Automatic path migration: when a queue pair moves to its alternate path. IBA 17.2.8.

The peer's MigReq bit moves it, ibv_modify_qp(3), or a requester that has no retry left.
"""

from rdmawire.ib.encapsulation import ends_of, ends_on
from rdmawire.ib.qp import QueuePair
from rdmawire.ib.rx_parser import Flow
from rdmawire.verbs.async_event import PathMigrated, PathMigrationFailed
from rdmawire.verbs.enums import MigrationState


def process_migreq(qp: QueuePair, flow: Flow) -> None:
    """Update path migration from the MigReq bit of a received packet."""
    state = qp.attributes.path_mig_state
    if not flow.bth.migreq and state == MigrationState.REARM:
        qp.set_migration(MigrationState.ARMED)
    elif flow.bth.migreq and state == MigrationState.ARMED:
        _follow_peer(qp, flow)


def is_on_alternate(qp: QueuePair, flow: Flow) -> bool:
    """Whether the packets of a flow are on the alternate path that the queue pair has loaded."""
    alternate, device = qp.attributes.alt_ah, qp.device
    if alternate is None or not qp.migrating:
        return False
    source, destination = ends_of(flow.headers)
    return (destination, source) == ends_on(alternate, device.medium, device.lid)


def _follow_peer(qp: QueuePair, flow: Flow) -> None:
    """Migrate to the alternate path if the peer sends on it. IBA 17.2.8.1.3."""
    if is_on_alternate(qp, flow):
        migrate(qp)
        return
    failed = PathMigrationFailed(qp.qp_num)
    if failed not in qp.events:  # every packet of the peer gets here
        qp.events.append(failed)


def selects_alternate(qp: QueuePair, wanted: MigrationState) -> bool:
    """Whether the migration state ``wanted`` selects the alternate path. IBA 17.2.8.1.4."""
    armed = qp.migrating and qp.attributes.path_mig_state == MigrationState.ARMED
    return armed and wanted == MigrationState.MIGRATED and qp.attributes.alt_ah is not None


def migrate(qp: QueuePair) -> None:
    """Make the alternate path the primary one, with its own timeout and P_Key.

    All retries are restored, whoever asked for it: those that the old path used say nothing about
    this one.
    """
    now = qp.attributes
    qp.attributes = now._replace(
        ah=now.alt_ah,
        pkey_index=now.alt_pkey_index,
        port_num=now.alt_port_num,
        timeout=now.alt_timeout,
    )
    qp.set_migration(MigrationState.MIGRATED)
    qp.retry_state.reset_retries()
    qp.events.append(PathMigrated(qp.qp_num))


def fail_over(qp: QueuePair) -> bool:
    """Migrate to the alternate path; ``False`` if there is none."""
    if not selects_alternate(qp, MigrationState.MIGRATED):
        return False
    migrate(qp)
    return True
