"""Traces of workloads in files: of which kind they are, and how they are read."""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
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
_GOAL: Final = re.compile(rb"\s*(?:num_ranks\b|rank\b|//|/\*)")
_NUMBER: Final = re.compile(r"(\d+)\.[^.]+\Z")
AnyPath = str | PathLike[str]


def read_trace(
    paths: Sequence[AnyPath], *, size: int = 0, groups: Groups | None = None
) -> Workload:
    """Read a workload from a GOAL schedule, an MSCCL algorithm, or Chakra's traces.

    Only the last are several files, one for each rank, with its number before the suffix:
    ``step.0.et``. ``size`` are the bytes of an algorithm's operation, 0 for 64 KiB in each chunk;
    ``groups`` are the process groups of Chakra's traces. Raises :class:`WorkloadError`.
    """
    if not paths:
        raise WorkloadError("no trace is given")
    names = [str(path) for path in paths]
    with ExitStack() as stack:
        files = [(stack.enter_context(_opened(name)), name) for name in names]
        head = files[0][0].read(_HEAD)
        files[0][0].seek(0)
        return _read(head, files, size, groups)


def _read(
    head: bytes, files: list[tuple[BinaryIO, str]], size: int, groups: Groups | None
) -> Workload:
    file, name = files[0]
    is_goal = _GOAL.match(head) is not None
    is_binary = head[: len(MAGIC)] in {MAGIC, USED}
    is_algorithm = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"<"
    if len(files) > 1 and (is_goal or is_binary or is_algorithm):
        raise WorkloadError(f"{name} has all ranks: give it alone, without {files[1][1]}")
    if size and not is_algorithm:
        raise WorkloadError(f"{name}: a size is for an MSCCL algorithm; this trace has its own")
    if is_algorithm:
        return parse_msccl(file, name, size)
    if is_binary:
        return parse_goal_binary(file, name)
    if is_goal:
        return parse_goal(file, name)
    if not head.strip():
        raise WorkloadError(f"{name}: the file is empty")
    return parse_chakra(_by_rank(files), groups)


def _by_rank(files: list[tuple[BinaryIO, str]]) -> list[tuple[BinaryIO, str]]:
    """Return files in the order of the ranks that their names have."""
    if len(files) == 1:
        return files
    found: dict[int, tuple[BinaryIO, str]] = {}
    for file, name in files:
        number = _NUMBER.search(name)
        if number is None or len(number[1]) > 9:
            raise WorkloadError(f"{name}: the number of its rank is expected, as in step.0.json")
        if int(number[1]) in found:
            raise WorkloadError(f"{name}: rank {int(number[1])} is there already")
        found[int(number[1])] = file, name
    missing = next((rank for rank in range(len(files)) if rank not in found), None)
    if missing is not None:
        raise WorkloadError(f"{len(files)} files, but none of rank {missing}")
    return [found[rank] for rank in range(len(files))]


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
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
