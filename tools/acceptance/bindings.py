"""Packages of Rust and of Python: test suites of bindings, from checkouts, and transfer engines."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.acceptance.case import Case, Package, Report

RUST: Final = Package("rust-ibverbs", repository="https://github.com/jonhoo/rust-ibverbs")
SIDEWAY: Final = Package("sideway", repository="https://github.com/RDMA-Rust/sideway")
PYTHON: Final = Package(
    "ibverbs of PyPI", pypi="ibverbs", repository="https://github.com/d4l3k/rdma4py"
)
NIXL: Final = Package("NIXL", pypi="nixl-cu12")
_BUILD_TOOLS: Final = "cmake ninja-build"
RDMA_CORE: Final = Package(
    "rdma-core's tests",
    f"{_BUILD_TOOLS} libnl-3-dev libnl-route-3-dev libudev-dev python3-dev cython3",
    repository="https://github.com/linux-rdma/rdma-core",
)
GLOO: Final = Package(
    "gloo",
    f"{_BUILD_TOOLS} libhiredis-dev",
    repository="https://github.com/pytorch/gloo",
)
_COLLECTIVES: Final = (
    *("allreduce_ring", "allreduce_halving_doubling", "allgather", "alltoall"),
    *("broadcast_one_to_all", "reduce", "pairwise_exchange", "sendrecv_roundtrip"),
)
"""Benchmarks of gloo; the first iteration compares the results."""
MOONCAKE: Final = Package("Mooncake", pypi="mooncake-transfer-engine-non-cuda")
TORCH: Final = Package("PyTorch", pypi="torch")
_ROOT: Final = Path(__file__).parents[2]
_MODULE: Final = f"PYTHONPATH={_ROOT} {{python}} -m tools.acceptance."
_RPC: Final = Path(__file__).with_name("torch_rpc.py")
_RPC_PORT: Final = 18980
# Its wheel has a libibverbs of its own, under a name of its own: ours comes before it.
_PRELOAD: Final = "LD_PRELOAD=$LD_PRELOAD:libibverbs.so.1"
_BUILD_SECONDS: Final = 600


def _built(product: str, options: str) -> str:
    """Return the command that builds a checkout with CMake, unless its product exists."""
    build = "{checkout}/build"
    return (
        f'sh -c "test -e {{checkout}}/{product} || (cmake -S {{checkout}} -B {build} -G Ninja'
        f' -DCMAKE_BUILD_TYPE=Release {options} && ninja -C {build})"'
    )


def _gloo(name: str) -> Case:
    program = "build/gloo/benchmark/benchmark"
    shared = (
        "--size 2 --shared-path {folder} --prefix gloo --transport ibverbs --ib-index 0"
        f" --iteration-count 20 --elements 100000 {name}"
    )
    client, server = (
        f"sh -c 'exec {{checkout}}/{program} --rank {rank} --ib-device {device} {shared}'"
        for rank, device in ((1, "{client}"), (0, "{server}"))
    )
    return Case(
        GLOO,
        f"benchmark --transport ibverbs {name}",
        client,
        server,
        prepare=_built(program, "-DUSE_IBVERBS=ON -DUSE_REDIS=ON -DBUILD_BENCHMARK=ON"),
        transport="RC",
        client_waits=True,
        limit=90,
    )


_SUITES: Final = (
    Case(
        RUST,
        "cargo test --features rdmacm -- --include-ignored",
        "cargo test --manifest-path {checkout}/Cargo.toml --features rdmacm -- --include-ignored",
        transport="RC, UC, UD, SRQ",
        report=Report.CARGO,
        limit=_BUILD_SECONDS,
    ),
    Case(
        SIDEWAY,
        "cargo test -- --test-threads=1",  # its tests wait for completions for 10 ms
        "cargo test --manifest-path {checkout}/Cargo.toml -- --test-threads=1",
        transport="RC",
        report=Report.CARGO,
        limit=_BUILD_SECONDS,
    ),
    Case(
        PYTHON,
        "pytest ibverbs/tests",
        "{python} -m pytest -v -p no:cacheprovider {checkout}/ibverbs/tests",
        transport="RC, UC, UD, SRQ",
        report=Report.PYTEST,
    ),
    Case(
        RDMA_CORE,
        "run_tests.py",
        "sh -c 'PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={checkout}/build/python"
        " exec /usr/bin/python3 {checkout}/tests/run_tests.py --dev {server} -v'",
        prepare=_built(
            "build/lib/libibverbs.so", "-DIN_PLACE=1 -DENABLE_STATIC=0 -DNO_MAN_PAGES=1"
        ),
        report=Report.UNITTEST,
        raw=True,
        limit=_BUILD_SECONDS,
    ),
)
"""Test suites of bindings, and of rdma-core."""

_ENGINES: Final = (
    Case(
        NIXL,
        "two agents, READ and WRITE of 1 MiB",
        f"sh -c '{_PRELOAD} {_MODULE}nixl_agents {{server}} {{client}}'",
        transport="UCX_TLS=rc_v,ud_v",
        expect="READ DONE True, WRITE DONE True",
        environment=(("UCX_TLS", "rc_v,ud_v"), ("UCX_IB_ROCE_REACHABILITY_MODE", "all")),
    ),
    Case(
        MOONCAKE,
        "two transfer engines, READ and WRITE of 4 MiB",
        f"env {_MODULE}mooncake_engines {{server}} {{client}}",
        transport="RC",
        expect="READ 0 True, WRITE 0 True",
    ),
    Case(
        TORCH,
        "RPC with TensorPipe's transport ibv",
        f"{{python}} {_RPC} {_RPC_PORT}",
        transport="RC, SRQ",
        expect="tensors, all right",
        limit=120,
    ),
)
"""Libraries that transfer memory between two processes."""


def cases() -> Iterator[Case]:
    """Yield all runs."""
    yield from _SUITES
    yield from map(_gloo, _COLLECTIVES)
    yield from _ENGINES
