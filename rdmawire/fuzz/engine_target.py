"""The software RNIC as a target: its responder, on a fresh queue pair for each case."""

from typing import Final

from rdmawire.errors import VerbsError
from rdmawire.fabric.host import Host
from rdmawire.fuzz.exchange import Numbers
from rdmawire.fuzz.setup import (
    AREAS,
    ARENA,
    FRESH_ARENA,
    PEER_QPN,
    QKEY,
    RECEIVE_SLOT,
    RECEIVE_SLOTS,
    RECEIVES,
    TARGET_QPN,
    WINDOW,
    Network,
    Setup,
)
from rdmawire.fuzz.target import Completion
from rdmawire.ib.qp import QPInit, QueuePair
from rdmawire.ib.rules import Rules
from rdmawire.ib.standard_rules import STANDARD
from rdmawire.memory.key import Access
from rdmawire.memory.mw import Bind, bind_window
from rdmawire.verbs.ah import AddressHandle, GIDType
from rdmawire.verbs.enums import SUCCESS, WCFlags, WorkCompletion
from rdmawire.verbs.profile import IBTA, Profile
from rdmawire.verbs.qp_attr import QPAttributes, QPCap
from rdmawire.verbs.wr import RecvWR, Sge
from rdmawire.wire.management import MTU, PATH_MTUS

_CAP: Final = QPCap(max_send_wr=16, max_recv_wr=16)
_COMPLETIONS: Final = 1 << 10
TARGET_HOST: Final = 2
PEER_HOST: Final = 1


class EngineTarget:
    """One adapter. ``rules`` and ``profile`` are those of :class:`rdmawire.ib.engine.Nic`."""

    def __init__(
        self, *, rules: Rules = STANDARD, profile: Profile = IBTA, name: str = "engine"
    ) -> None:
        self.name = name
        self._rules = rules
        self._profile = profile
        self._setup: Setup | None = None
        self._qp: QueuePair | None = None

    def numbers(self, setup: Setup) -> Numbers:
        """Return the addresses and keys that a peer needs for this setup."""
        self._prepare(setup)
        areas = [*AREAS, WINDOW]
        vas = tuple(self._base + area.start for area in areas)
        return Numbers(TARGET_QPN, vas, (*(region.rkey for region in self._regions), self._rkey))

    def path(self, setup: Setup) -> tuple[AddressHandle, bytes]:
        """Return the peer's path to the target, and the peer's MAC address."""
        self._prepare(setup)
        return _path(self._peer, self._host, setup.network), self._peer.mac

    def _prepare(self, setup: Setup) -> None:
        """Make the hosts anew if the addresses change; memory and keys are the same for all."""
        if self._setup is not None and self._setup.network is setup.network:
            self._setup = setup
            return
        ipv6 = setup.network is not Network.ROCE2_IPV4
        self._setup = setup
        self._qp = None
        self._host = Host(TARGET_HOST, profile=self._profile, rules=self._rules, ipv6=ipv6)
        self._peer = Host(PEER_HOST, ipv6=ipv6)
        memory = self._host.space.allocate(ARENA)
        self._base = memory.base
        nic, pd = self._host.nic, self._host.pd
        self._regions = [
            nic.memory.reg_mr(pd, memory.base + area.start, area.length, area.access)
            for area in AREAS
        ]
        self._sink = nic.memory.reg_mr(
            pd, memory.base + RECEIVES, RECEIVE_SLOT * RECEIVE_SLOTS, Access.LOCAL_WRITE
        )
        self._window = nic.memory.alloc_mw(pd, 2)
        self._cq = nic.create_cq(_COMPLETIONS)

    def reset(self, setup: Setup) -> None:
        """Make a fresh queue pair, and memory and keys as at first."""
        self._prepare(setup)
        host, nic = self._host, self._host.nic
        if self._qp is not None:
            nic.destroy_qp(self._qp)
            self._cq.poll(_COMPLETIONS)
            host.events()
        host.space.write(self._base, FRESH_ARENA)
        self.now = 0
        self._posted = 0
        init = QPInit(host.pd, self._cq, self._cq, _CAP)
        self._qp = nic.create_qp(setup.service, init, TARGET_QPN)
        host.bring_up(self._qp, self._attributes(setup))
        self._bind()

    def _attributes(self, setup: Setup) -> QPAttributes:
        access = AREAS[0].access & ~Access.LOCAL_WRITE if setup.access else 0
        return QPAttributes(
            path_mtu=MTU(PATH_MTUS.index(setup.mtu) + 1),
            qkey=QKEY,
            rq_psn=setup.psn,
            sq_psn=setup.psn,
            qp_access_flags=access,
            max_rd_atomic=setup.rd_atomic,
            max_dest_rd_atomic=setup.rd_atomic,
            min_rnr_timer=setup.rnr_timer,
            timeout=14,
            retry_cnt=3,
            rnr_retry=3,
            dest_qp_num=PEER_QPN,
            ah=_path(self._host, self._peer, setup.network),
        )

    def _bind(self) -> None:
        """Bind the window to the fresh queue pair, with the next variant of its key."""
        if self._window.valid:
            return
        key = self._window.key
        bind = Bind(
            self._base + WINDOW.start,
            WINDOW.length,
            WINDOW.access,
            TARGET_QPN,
            self._host.pd,
            key & ~0xFF | (key + 1) & 0xFF,
        )
        self._rkey = bind_window(self._host.nic.memory.keys, self._window, self._regions[0], bind)

    @property
    def keys(self) -> tuple[int, ...]:
        """The remote keys of the regions and of the window."""
        return (*(region.rkey for region in self._regions), self._rkey)

    def send(self, frame: bytes) -> list[bytes]:
        """Deliver a frame; return all frames that the adapter then sends."""
        nic = self._host.nic
        nic.receive(frame, self.now)
        return self._sent()

    def _sent(self) -> list[bytes]:
        nic, now = self._host.nic, self.now
        frames = nic.transmit(now)
        while nic.sends_more:
            more = nic.transmit(now)
            if not more:
                break
            frames += more
        return frames

    def post_receive(self, length: int) -> bool:
        """Post a receive into the next slot; ``False`` if the queue pair refuses it."""
        assert self._qp is not None
        start = self._base + RECEIVES + self._posted % RECEIVE_SLOTS * RECEIVE_SLOT
        sges = (Sge(start, length, self._sink.lkey),) if length else ()
        try:
            self._host.nic.post_recv(self._qp, (RecvWR(sges, self._posted + 1),))
        except VerbsError:
            return False
        self._posted += 1
        return True

    def completions(self) -> list[Completion]:
        """Remove and return the completions."""
        return [_completion(done) for done in self._cq.poll(_COMPLETIONS)]

    def memory(self) -> bytes:
        """Return the arena."""
        return self._host.space.read(self._base, ARENA)

    def wait(self, ns: int) -> list[bytes]:
        """Let time pass, with the timers that are due; return the frames sent."""
        nic, end = self._host.nic, self.now + ns
        frames = self._sent()
        while (due := nic.next_timer()) is not None and due <= end:
            self.now = max(due, self.now)
            nic.handle_timer(self.now)
            frames += self._sent()
        self.now = end
        return frames


def _path(host: Host, other: Host, network: Network) -> AddressHandle:
    path = host.path_to(other)
    return path._replace(gid_type=GIDType.ROCE_V1) if network is Network.ROCE1 else path


def _completion(done: WorkCompletion) -> Completion:
    if done.status is not SUCCESS:
        return Completion(done.wr_id, done.status)
    value = done.imm_data if done.wc_flags & WCFlags.WITH_IMM else done.invalidated_rkey
    return Completion(done.wr_id, done.status, done.opcode, done.byte_len, value)
