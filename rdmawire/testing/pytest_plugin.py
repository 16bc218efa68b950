"""A plugin of pytest: ``pytest --rdmawire-devices 2`` runs the tests on emulated RDMA devices.

pytest starts again as the command of ``rdmawire verbs``, so that its own process and all that
tests start load the stand-in ``libibverbs.so.1``: the dynamic linker reads its path when a process
starts.
Without the option the plugin does nothing.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

import pytest

_INSIDE: Final = "RDMAWIRE_PYTEST"
"""The variable that is set where pytest runs on devices already."""
_OPTIONS: Final = {
    "--rdmawire-devices": ("--devices", "N", "Run the tests on N emulated RDMA devices."),
    "--rdmawire-network": ("--network", "TEXT", "Network between them: rdmawire verbs --network."),
    "--rdmawire-pcap": ("--pcap", "FILE", "Capture their packets to FILE.pcap."),
}
"""Options of pytest: the option of ``rdmawire verbs``, and the help."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("rdmawire", "emulated RDMA devices (rdmawire)")
    for name, (_, metavar, text) in _OPTIONS.items():
        group.addoption(name, metavar=metavar, help=text)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Start pytest again on devices, in place of this process.

    ``UsageError`` for an option without ``--rdmawire-devices``, and where pytest was not started
    by a command line.
    """
    given = {name: config.getoption(name) for name in _OPTIONS if config.getoption(name)}
    if not given or _INSIDE in os.environ:
        return
    if "--rdmawire-devices" not in given:
        raise pytest.UsageError(f"{next(iter(given))} goes with --rdmawire-devices N")
    if list(config.invocation_params.args) != sys.argv[1:]:
        raise pytest.UsageError(
            "--rdmawire-devices needs a command line: run the program by `rdmawire verbs --`"
        )
    os.environ[_INSIDE] = "1"
    sys.stdout.flush()
    os.execv(sys.executable, command(given, sys.orig_argv[1:]))  # noqa: S606  pytest itself


def command(given: Mapping[str, str], arguments: Sequence[str]) -> list[str]:
    """Return the command that runs Python with these arguments on devices."""
    words = [word for name, value in given.items() for word in (_OPTIONS[name][0], value)]
    python = sys.executable
    return [python, "-m", "rdmawire", "verbs", *words, "--", python, *arguments]
