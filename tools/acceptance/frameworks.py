"""UCX, libfabric, rdma-core's Python tests, and NCCL's transport over verbs without a GPU."""

from collections.abc import Iterator
from dataclasses import replace

from tools.acceptance.case import Case, Package, Report

UCX = Package("UCX", "ucx-utils")
LIBFABRIC = Package("libfabric", "libfabric-bin")
PYVERBS = Package("pyverbs", "python3-pyverbs")
NCCL = Package("NCCL")
_PORT = 18800
_UCX_RUNS = (
    ("rc_v", "tag_lat", "-n 500 -w 50"),
    ("rc_v", "tag_bw", "-s 65536 -n 500 -w 50"),
    ("rc_v", "tag_bw", "-s 1048576 -n 50 -w 5"),
    ("rc_v", "ucp_put_bw", "-s 8192 -n 500 -w 50"),
    ("rc_v", "ucp_put_lat", "-n 500 -w 50"),
    ("rc_v", "ucp_get", "-s 8192 -n 500 -w 50"),
    ("rc_v", "ucp_fadd", "-n 500 -w 50"),
    ("rc_v", "ucp_am_lat", "-n 500 -w 50"),
    ("rc_v", "stream_bw", "-s 8192 -n 500 -w 50"),
    ("ud_v", "tag_lat", "-n 500 -w 50"),
    ("ud_v", "tag_bw", "-s 65536 -n 200 -w 20"),
    ("ud_v", "ucp_am_lat", "-n 500 -w 50"),
    ("rc", "tag_lat", "-n 500 -w 50"),
    ("rc", "tag_bw", "-s 65536 -n 500 -w 50"),
)
"""Value of UCX_TLS, test, options."""
_TEST_MODULES = (
    *("addr", "pd", "device", "cq", "cq_events", "cqex", "mr", "qp", "qpex", "odp"),
    *("atomic", "parent_domain", "shared_pd", "fork", "relaxed_ordering", "rdmacm"),
    *("flow", "rss_traffic", "tag_matching"),
)
"""Files of rdma-core's tests that are for every provider."""


def ucx_run(transport: str, test: str, options: str) -> Case:
    """Return a run of ucx_perftest over one of UCX's transports."""
    shared = f"-t {test} {options} -p {_PORT}"
    return Case(
        UCX,
        f"ucx_perftest -t {test} {options}",
        f"env UCX_NET_DEVICES={{client}}:1 ucx_perftest 127.0.0.1 {shared}",
        f"env UCX_NET_DEVICES={{server}}:1 ucx_perftest {shared}",
        transport=f"UCX_TLS={transport}",
        environment=(("UCX_TLS", transport), ("UCX_WARN_UNUSED_ENV_VARS", "n")),
        expect=r"Final:|\|\s*Stage|\n\s+\d+",
        port=_PORT,
        limit=90,
    )


def _fabric(provider: str, kind: str, options: str, domain: str = "") -> Case:
    shared = f"-p {provider} -e {kind} {options}"
    return Case(
        LIBFABRIC,
        f"fi_pingpong -p '{provider}' -e {kind} {options}",
        f"fi_pingpong -d {{client}}{domain} {shared} 127.0.0.1",
        f"fi_pingpong -d {{server}}{domain} {shared}",
        transport=kind,
        expect=r"\n(4k|1m) ",
        port=47592,
    )


def _nccl(size: int, count: int) -> Case:
    driver = "{nccl} {folder}/handle"
    return Case(
        NCCL,
        f"ncclNetIb, {count} messages of {size} B",
        f"env NCCL_IB_HCA==rw1 {driver} send {size} {count}",
        f"env NCCL_IB_HCA==rw0 {driver} recv {size} {count}",
        transport="RC",
        expect="send: ",
        client_waits=True,
        environment=(("NCCL_SOCKET_IFNAME", "lo"), ("NCCL_DEBUG", "WARN")),
        limit=120,
    )


def cases() -> Iterator[Case]:
    """Yield all runs."""
    yield Case(UCX, "ucx_info -d", "ucx_info -d", expect="rw0:1", frames=False)
    for row in _UCX_RUNS:
        yield ucx_run(*row)
    yield replace(ucx_run("rc_v", "tag_lat", "-n 500 -w 50"), joined=True)
    yield replace(ucx_run("rc_v", "tag_bw", "-s 65536 -n 200 -w 20"), network="loss=0.001,seed=1")
    yield Case(
        LIBFABRIC, "fi_info -p verbs", "fi_info -p verbs", expect="provider: verbs", frames=False
    )
    yield _fabric("verbs", "msg", "-I 100 -c")
    yield _fabric("verbs;ofi_rxm", "rdm", "-I 100 -c")
    yield _fabric("verbs;ofi_rxm", "rdm", "-I 100 -c -m tagged")
    yield _fabric("verbs", "dgram", "-I 100", "-dgram")
    for size, count in ((1024, 200), (65536, 200), (1 << 20, 50)):
        yield _nccl(size, count)
    for module in _TEST_MODULES:
        yield Case(
            PYVERBS,
            f"test_{module}.py",
            f"/usr/bin/python3 {{tests}}/run_tests.py --dev rw0 -v tests.test_{module}",
            report=Report.UNITTEST,
            frames=False,
            raw=True,
            limit=150,
        )
