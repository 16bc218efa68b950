"""Open MPI and MPICH: mpi_check compares messages, collectives and windows on UCX and libfabric."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from tools.acceptance.case import Case, Package

OPENMPI: Final = Package("Open MPI", "openmpi-bin libopenmpi-dev")
MPICH: Final = Package("MPICH", "mpich libmpich-dev")
_PROGRAM: Final = Path(__file__).with_name("mpi_check.c")
_OFI: Final = "verbs;ofi_rxm"
_LOSSY: Final = "loss=0.001,seed=1"
_MODES: Final = ("point", "collective", "window")


class Mpi(NamedTuple):
    """An MPI: its package, its compiler, the command that starts ranks, and its layer below."""

    package: Package
    compiler: str
    start: str
    rank: str
    """Options of one rank; ``{{device}}`` is its device."""
    transport: str
    environment: tuple[tuple[str, str], ...] = ()


def _openmpi(layers: str, rank: str, transport: str, **environment: str) -> Mpi:
    start = f"mpirun.openmpi --allow-run-as-root --oversubscribe {layers}"
    return Mpi(OPENMPI, "mpicc.openmpi", start, rank, transport, tuple(environment.items()))


def _on_ucx(tls: str) -> tuple[Mpi, Mpi]:
    transport = f"UCX_TLS={tls},self"
    ucx = {"UCX_TLS": f"{tls},self", "UCX_WARN_UNUSED_ENV_VARS": "n"}
    layers = "--mca pml ucx --mca osc ucx --mca btl self"
    return (
        _openmpi(layers, "-x UCX_NET_DEVICES={device}:1", transport, **ucx),
        Mpi(
            MPICH,
            "mpicc.mpich",
            "mpiexec.mpich",
            "-env UCX_NET_DEVICES {device}:1",
            transport,
            tuple(ucx.items()),
        ),
    )


RC: Final = _on_ucx("rc_v")
UD: Final = _on_ucx("ud_v")
LIBFABRIC: Final = _openmpi(
    f"--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include '{_OFI}'"
    " --mca btl self --mca osc pt2pt",
    "",
    _OFI,
)


def run(mpi: Mpi, mode: str, ranks: int = 2, limit: int = 120) -> Case:
    """Return a run of mpi_check; ranks alternate between the two devices."""
    devices = ("{server}", "{client}")
    parts = (
        f"-np 1 {mpi.rank.format(device=devices[index % 2])} {{folder}}/mpi_check {mode}"
        for index in range(ranks)
    )
    return Case(
        mpi.package,
        f"mpi_check {mode}, {ranks} ranks",
        f"{mpi.start} {' : '.join(parts)}",
        prepare=f"{mpi.compiler} -O2 -pthread {_PROGRAM} -o {{folder}}/mpi_check",
        transport=mpi.transport,
        expect="comparisons, all right",
        environment=mpi.environment,
        limit=limit,
    )


def _of(mpis: tuple[Mpi, ...]) -> Iterator[Case]:
    for mpi in mpis:
        for mode in _MODES:
            yield run(mpi, mode)


def _with_threads(mpi: Mpi, count: int) -> Case:
    """Return a run of ranks with threads, which take turns by a mutex of UCX."""
    mutex = (*mpi.environment, ("UCX_USE_MT_MUTEX", "y"))
    return run(mpi._replace(environment=mutex), f"threads {count}")


def cases() -> Iterator[Case]:
    """Yield all runs."""
    for index, others in ((0, (LIBFABRIC,)), (1, ())):
        rc = RC[index]
        yield from _of((rc, UD[index], *others))
        yield run(rc, "collective", ranks=4)
        yield _with_threads(rc, 2)
        yield _with_threads(rc, 4)
        yield replace(run(rc, "point"), network=_LOSSY)
