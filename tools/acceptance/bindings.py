"""Test suites of bindings: of Rust and of Python, from checkouts of their repositories."""

from collections.abc import Iterator
from typing import Final

from tools.acceptance.case import Case, Package, Report

RUST: Final = Package("rust-ibverbs", repository="https://github.com/jonhoo/rust-ibverbs")
SIDEWAY: Final = Package("sideway", repository="https://github.com/RDMA-Rust/sideway")
PYTHON: Final = Package(
    "ibverbs of PyPI", pypi="ibverbs", repository="https://github.com/d4l3k/rdma4py"
)
_BUILD_SECONDS: Final = 600


def cases() -> Iterator[Case]:
    """Yield all runs."""
    yield Case(
        RUST,
        "cargo test --features rdmacm -- --include-ignored",
        "cargo test --manifest-path {checkout}/Cargo.toml --features rdmacm -- --include-ignored",
        transport="RC, UC, UD, SRQ",
        report=Report.CARGO,
        limit=_BUILD_SECONDS,
    )
    yield Case(
        SIDEWAY,
        "cargo test -- --test-threads=1",  # its tests wait for completions for 10 ms
        "cargo test --manifest-path {checkout}/Cargo.toml -- --test-threads=1",
        transport="RC",
        report=Report.CARGO,
        limit=_BUILD_SECONDS,
    )
    yield Case(
        PYTHON,
        "pytest ibverbs/tests",
        "{python} -m pytest -v -p no:cacheprovider {checkout}/ibverbs/tests",
        transport="RC, UC, UD, SRQ",
        report=Report.PYTEST,
    )
