"""Traces of workloads in files: of which kind they are, and how they are read."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader
from os import PathLike
from pathlib import Path
from typing import BinaryIO, Final

from rdmawire.errors import WorkloadError
from rdmawire.gpudirect.workload.chakra import Groups, parse_chakra
from rdmawire.gpudirect.workload.goal import parse_goal
from rdmawire.gpudirect.workload.goal_binary import MAGIC, USED, parse_goal_binary
from rdmawire.gpudirect.workload.graph import Workload
from rdmawire.gpudirect.workload.msccl import parse_msccl

_HEAD: Final = 512
"""Bytes by which the kind of a file is seen."""
_GOAL: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:num_ranks\b|rank\b|//|/\*)")
_NUMBER: Final = re.compile(r"(\d+)\.[^.]+\Z")
TracePath = str | PathLike[str]


def read_trace(
    paths: Sequence[TracePath], *, size: int = 0, groups: Groups | None = None
) -> Workload:
    """Read a workload from a GOAL schedule, an MSCCL algorithm, or Chakra's traces.

    Only the last are several files, one for each rank, with its number before the suffix:
    ``step.0.et``. ``size`` are the bytes of an algorithm's operation, 0 for 64 KiB in each chunk;
    ``groups`` are the process groups of Chakra's traces. Raises :class:`WorkloadError`.
    """
    if not paths:
        raise WorkloadError("no trace is given")
    names = [str(path) for path in paths]
    name = names[0]
    with _opened(name) as file:
        head = file.peek(_HEAD)[:_HEAD]
        read = _reader(head)
        if read is None and not head.strip():
            raise WorkloadError(f"{name}: the file is empty")
        if read is not None:
            _check_alone(names, groups)
        if size and read is not parse_msccl:
            raise WorkloadError(f"{name}: a size is for an MSCCL algorithm; this trace has its own")
        if read is parse_msccl:
            return parse_msccl(file, name, size)
        if read is not None:
            return read(file, name)
        if len(names) == 1:
            return parse_chakra([(file, name)], groups)
    return parse_chakra(_each(_by_rank(names)), groups)


def _check_alone(names: list[str], groups: Groups | None) -> None:
    """Check that a file with all ranks is alone, and without the groups of Chakra's traces."""
    if len(names) > 1:
        raise WorkloadError(f"{names[0]} has all ranks: give it alone, without {names[1]}")
    if groups is not None:
        raise WorkloadError(f"{names[0]}: process groups are for Chakra's traces; this is another")


def _reader(head: bytes) -> Callable[[BinaryIO, str], Workload] | None:
    """Return the function that reads a file with this beginning; none for one of Chakra's."""
    if head[: len(MAGIC)] in {MAGIC, USED}:
        return parse_goal_binary
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"<":
        return parse_msccl
    return parse_goal if _GOAL.match(head) is not None else None


def _each(names: list[str]) -> Iterator[tuple[BinaryIO, str]]:
    """Yield one file after the other, open."""
    for name in names:
        with _opened(name) as file:
            yield file, name


def _by_rank(names: list[str]) -> list[str]:
    """Return files in the order of the ranks that their names have."""
    found: dict[int, str] = {}
    for name in names:
        number = _NUMBER.search(name)
        if number is None or len(number[1]) > 9:
            raise WorkloadError(f"{name}: the number of its rank is expected, as in step.0.json")
        if int(number[1]) in found:
            raise WorkloadError(f"{name}: rank {int(number[1])} is there already")
        found[int(number[1])] = name
    missing = next((rank for rank in range(len(names)) if rank not in found), None)
    if missing is not None:
        raise WorkloadError(f"{len(names)} files, but none of rank {missing}")
    return [found[rank] for rank in range(len(names))]


@contextmanager
def _opened(name: str) -> Iterator[BufferedReader]:
    try:
        file = Path(name).open("rb")  # noqa: SIM115 - it is closed below
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise WorkloadError(f"{name}: {reason}") from None
    with file:
        try:
            yield file
        except OSError as error:
            raise WorkloadError(f"{name}: {(error.strerror or str(error)).lower()}") from None
