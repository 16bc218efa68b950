"""What stands where a struct cannot go on."""

from collections.abc import Callable
from typing import Any, NoReturn

from construct import Construct, SizeofError, ValidationError


class Refused(Construct):
    """Neither parses nor builds, and says why: ``why`` is asked of the container so far."""

    def __init__(self, why: Callable[[Any], str]) -> None:
        super().__init__()
        self.flagbuildnone = True
        self._why = why

    def _parse(self, stream: Any, context: Any, path: str) -> NoReturn:  # noqa: ARG002
        raise ValidationError(self._why(context), path=path)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> NoReturn:  # noqa: ARG002
        raise ValidationError(self._why(context), path=path)

    def _sizeof(self, context: Any, path: str) -> NoReturn:  # noqa: ARG002
        raise SizeofError("nothing stands here", path=path)
