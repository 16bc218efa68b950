"""A run of a program, as data, and its result."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

DEVICES: Final = ("rw0", "rw1")
"""The device of the server, and that of the client."""
ADDRESSES: Final = ("10.0.0.1", "10.0.0.2")
"""Their addresses."""
JOINED_ADDRESSES: Final = ("10.0.0.1", "10.0.0.101")
"""The addresses of two services that are joined by UDP."""


@dataclass(frozen=True, slots=True)
class Package:
    """The package or repository of a program."""

    title: str
    debian: str = ""
    """Names of Debian's packages; the version is that of the first."""
    pypi: str = ""
    """Name of the package that pip installs for the Python of --python."""
    repository: str = ""
    """Address of the repository; its checkout is in the folder of --sources, by its name."""

    @property
    def checkout(self) -> str:
        """Name of the folder of the checkout; empty if none is needed."""
        return self.repository.rpartition("/")[2]

    @property
    def needed(self) -> tuple[str, ...]:
        """Names of Debian's packages."""
        return tuple(self.debian.split())


class Report(StrEnum):
    """The format in which a test suite reports its tests."""

    UNITTEST = "unittest"
    CARGO = "cargo"
    PYTEST = "pytest"


@dataclass(frozen=True, slots=True)
class Case:
    """A run of one program, or of a server and a client.

    In command lines ``{server}`` and ``{client}`` are the devices, ``{address}`` and
    ``{own_address}`` are the addresses of the server's and of the client's device, ``{folder}`` is
    an empty folder, ``{tests}`` that of rdma-core's Python tests, ``{checkout}`` that of the
    package, and ``{python}`` the Python of --python. Programs run in ``{folder}``.
    """

    package: Package
    options: str
    """The program and its options, as the page shows them."""
    client: str
    """Command line of the client, or of the only program."""
    server: str = ""
    prepare: str = ""
    """Command line that is run first, without devices: it compiles, or makes files."""
    transport: str = ""
    expect: str = ""
    """Regular expression that is found in what the client prints."""
    refused: str = ""
    """Regular expression of the error with which the program ends: it needs what is refused."""
    environment: tuple[tuple[str, str], ...] = ()
    network: str = ""
    joined: bool = False
    """Whether server and client use two services that are joined by UDP."""
    frames: bool = True
    """Whether there must be frames in the capture."""
    raw: bool = False
    """Whether the program sends raw packets, whose headers may be malformed on purpose."""
    server_ends: bool = True
    """Whether the server ends by itself after its client did."""
    port: int = 0
    """TCP port at which the server listens; 0 if it does not."""
    ready: str = ""
    """Regular expression of what the server prints when a client can connect."""
    client_waits: bool = False
    """Whether the client waits for the server by itself."""
    report: Report | None = None
    """Format of the report, if the program is a test suite."""
    limit: int = 60
    """Seconds after which the run is ended, and has failed."""

    @property
    def program(self) -> str:
        """The program's name."""
        return self.options.split()[0]

    @property
    def where(self) -> str:
        """The network, in words of the page."""
        if self.joined:
            return "two services joined by UDP"
        return self.network or "direct"


class Verdict(StrEnum):
    """Verdict of a run. REFUSED: it ended with the error that was expected."""

    PASSED = "passed"
    REFUSED = "refused"
    FAILED = "failed"
    MISSING = "not run"


@dataclass(frozen=True, slots=True)
class UnitTest:
    """A test: ok, skipped, FAIL or ERROR, and the reason."""

    name: str
    outcome: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Frames:
    """Frames of a capture, as `rdmawire dissect -q` and tshark count them."""

    count: int = 0
    bad_icrc: int = 0
    malformed: int = 0
    tshark_malformed: int | None = None
    """``None`` without tshark."""

    @property
    def faulty(self) -> bool:
        """Whether a frame has a bad ICRC or is malformed."""
        return bool(self.bad_icrc or self.malformed or self.tshark_malformed)


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one run."""

    case: Case
    verdict: Verdict
    reason: str = ""
    seconds: float = 0.0
    frames: Frames = Frames()
    figure: str = ""
    """What the program measured, if it says so."""
    tests: tuple[UnitTest, ...] = ()
