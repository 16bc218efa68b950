"""What is mutated, the tests that are to find it, and the mutants that no test can find."""

from pathlib import Path
from typing import NamedTuple

from tools.mutants.mutation import Mutant

_KEYS = (
    "tests/test_identifier.py", "tests/fabric/test_identifiers.py",
    "tests/memory/test_key.py", "tests/memory/test_chosen_key.py", "tests/memory/test_mw.py",
    "tests/memory/test_region.py", "tests/memory/test_on_demand.py", "tests/memory/test_fast.py",
)  # fmt: skip
_ASKING = (
    "tests/nic/test_completer.py", "tests/nic/test_requester.py", "tests/nic/test_rnr.py",
    "tests/nic/test_retry.py",
)  # fmt: skip
_ANSWERING = (
    "tests/nic/test_responder.py", "tests/nic/test_rights.py", "tests/nic/test_answer.py",
    "tests/nic/test_absent_memory.py", "tests/nic/test_unreliable.py", "tests/nic/test_xrc.py",
)  # fmt: skip
_ROOT = Path(__file__).parents[2]
_NIC = tuple(str(path.relative_to(_ROOT)) for path in sorted(_ROOT.glob("tests/nic/test_*.py")))
_ROOMS = ("tests/nic/congestion", "tests/nic/machines")

TARGETS: dict[str, tuple[tuple[str, ...], ...]] = {
    "rdmawire/memory/key.py": (_KEYS, ("tests/memory",), _NIC),
    "rdmawire/memory/region.py": (_KEYS, ("tests/memory",), _NIC),
    "rdmawire/nic/check.py": (_ANSWERING, _NIC),
    "rdmawire/nic/completer.py": (_ASKING, _NIC),
    "rdmawire/nic/responder.py": (_ANSWERING, (*_NIC, *_ROOMS)),
}
"""By file: tests, those first that most likely find a mutant; the next only if those do not."""


class Equivalent(NamedTuple):
    """A mutant that behaves as the code does: a line of ``file`` (stripped), and why."""

    file: str
    line: str
    was: str
    becomes: str
    reason: str

    def is_it(self, file: str, source: str, mutant: Mutant) -> bool:
        """Whether this mutant of a file is meant."""
        line = source.splitlines()[mutant.line - 1].strip()
        return (file, line, mutant.was, mutant.becomes) == self[:4]


EQUIVALENT: tuple[Equivalent, ...] = (
    Equivalent(
        "rdmawire/nic/completer.py",
        "if end > packets or wqe.verb.takes_resource or wqe.status is not None:",
        "end > packets",
        "(end >= packets)",
        "what is not completed here, _settled completes: one call more, and the same outcome",
    ),
    Equivalent(
        "rdmawire/memory/region.py",
        "self._tally = counter[Path.HOST]",
        "self._tally = counter[Path.HOST]",
        "pass",
        "a region without pages counts nothing, and one with pages counts by their path",
    ),
)
