"""The page of the functions that ``librdmacm.so.1`` has, from the table that the build uses."""

from collections.abc import Iterator

from csrc.ibverbs.functions import Export
from csrc.rdmacm.functions import SONAME, exports
from tools.docs.libibverbs import by_version


def page() -> Iterator[str]:
    """Return the lines of the page."""
    rows = [Export(*row) for row in exports()]
    yield "# Functions of librdmacm\n"
    yield (
        f"The functions of the `{SONAME}` that connects emulated devices, generated from the table "
        f"that its build uses. It has every symbol of rdma-core's library up to "
        f"{rows[-1].version}, each with its version. Connections are made by packets of the "
        "connection manager, which a capture shows.\n"
    )
    yield from by_version(rows)
