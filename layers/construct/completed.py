"""Structs that work out what is left out of them before they are built."""

from collections.abc import Callable
from typing import Any

from construct import Adapter, Construct, Container, ValidationError

from rdmawire.errors import WireError


class Completed(Adapter):
    """A struct that is built from what ``complete`` makes of a container or dict."""

    def __init__(self, subcon: Construct, complete: Callable[[Any], dict[str, Any]]) -> None:
        super().__init__(subcon)
        self._complete = complete

    def _decode(self, obj: Container, context: Any, path: str) -> Container:  # noqa: ARG002
        return obj

    def _encode(self, obj: Any, context: Any, path: str) -> dict[str, Any]:  # noqa: ARG002
        try:
            return self._complete(obj)
        except WireError as error:
            raise ValidationError(str(error), path=path) from error
