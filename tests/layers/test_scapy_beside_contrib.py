"""Scapy's own RoCE layer goes on working beside ours; each case has an interpreter of its own."""

import subprocess
import sys

import pytest

OURS = "from rdmawire.layers import scapy as ours"
THEIRS = "from scapy.contrib import roce as theirs"
BEGIN = """
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
link = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
ip = link / IP(src="192.0.2.1", dst="192.0.2.2") / UDP()
"""

READ_BY_OURS = """
raw = bytes.fromhex(
    "7cfe90753cd87cfe90753cd889156020000000141b4000000000000000000000ffff0f000002"
    "00000000000000000000ffff0f0000021140ffff0000010900a788c00000000525f0c038"
)
pkt = Ether(raw)
assert type(pkt.payload) is ours.GRH and type(pkt.payload.payload) is ours.BTH
assert type(pkt[ours.BTH].payload) is ours.AETH and pkt[ours.BTH].icrc_good()
assert Ether(bytes(ip / ours.BTH(opcode="RC_SEND_ONLY") / b"abc"))[ours.BTH].icrc_good()
"""

READ_BY_THEIRS = """
raw = bytes.fromhex(
    "e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a001201"
    "000012b7002800008100ffff400001180000000000000000000000000000000000000000"
    "82fd002a"
)
pkt = Ether(raw)
assert type(pkt[UDP].payload) is theirs.BTH and type(pkt[theirs.BTH].payload) is theirs.CNPPadding
assert pkt[theirs.BTH].icrc == 0x82FD002A
grh = Ether(bytes(link / theirs.GRH() / theirs.BTH() / b"abcd"))
assert type(grh.payload) is theirs.GRH and type(grh.payload.payload) is theirs.BTH
"""

BUILT_BY_THEIRS = """
pkt = link / IP(src="22.22.22.7", dst="22.22.22.8", version=4, ihl=5, tos=0x1, id=1144) / UDP()
pkt /= theirs.cnp(dqpn=211)
raw = bytes(pkt)
assert UDP(raw[34:]).dport == 4791
ack = ip / theirs.BTH(opcode=theirs.opcode("RC", "ACKNOWLEDGE")[0]) / theirs.AETH(msn=5)
assert bytes(ack)[42] == 0x11 and bytes(ack)[54:58] == bytes.fromhex("00000005")
"""


def interpreted(program: str) -> subprocess.CompletedProcess[str]:
    """What becomes of a program in a fresh interpreter."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def run(*steps: str) -> str:
    """What the steps print, one after the other in a fresh interpreter."""
    done = interpreted("\n".join((BEGIN, *steps)))
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("imports", [(OURS, THEIRS), (THEIRS, OURS)], ids=["before", "after"])
def test_ours_comes_first_whichever_is_loaded_first(imports: tuple[str, ...]) -> None:
    run(*imports, READ_BY_OURS, BUILT_BY_THEIRS)


@pytest.mark.parametrize("imports", [(OURS, THEIRS), (THEIRS, OURS)], ids=["before", "after"])
def test_theirs_is_as_before_once_ours_is_unbound(imports: tuple[str, ...]) -> None:
    run(*imports, READ_BY_OURS if imports[1] == OURS else "", "ours.unbind()", READ_BY_THEIRS)
    run(*imports, "ours.unbind()", BUILT_BY_THEIRS)


@pytest.mark.slow
def test_theirs_builds_the_same_bytes_with_and_without_ours() -> None:
    print_bytes = BUILT_BY_THEIRS + "print(raw.hex(), bytes(ack).hex())"
    alone = run(THEIRS, print_bytes)
    assert run(THEIRS, OURS, print_bytes) == run(OURS, THEIRS, print_bytes) == alone


@pytest.mark.parametrize(("library", "extra"), [("scapy", "Scapy"), ("construct", "Construct")])
def test_without_the_library_the_error_shows_how_to_install_it(library: str, extra: str) -> None:
    program = f"import sys; sys.modules['{library}'] = None; import rdmawire.layers.{library}"
    done = interpreted(program)
    assert done.stderr.splitlines()[-1] == (
        f'ImportError: rdmawire.layers.{library} needs {extra}: pip install "rdmawire[{library}]"'
    )
    assert "another exception" not in done.stderr


def test_ours_adds_little_to_the_loading_of_scapy() -> None:
    program = f"import scapy.all; from tests.waiting import calls\ndef load():\n    {OURS}"
    assert int(run(program, "print(calls(load))")) < 1_000_000  # about a third of a second


def test_the_command_loads_neither_library() -> None:
    program = "import sys, rdmawire.cli.main; print({'scapy', 'construct'} & set(sys.modules))"
    done = interpreted(program)
    assert done.stdout.strip() == "set()"
