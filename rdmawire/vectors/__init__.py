"""The shipped test vectors: what each shows, and a search of them by words.

::

    from rdmawire.vectors import VectorSearch, default_folders, find_pack, golden, records

    pack = find_pack(default_folders())
    for vector in VectorSearch(golden(pack)).find(["RNR_NAK"]):
        for case, frames in records(pack, [vector.case]):
            print(case.name, len(frames))
"""

from rdmawire.vectors.cases import (
    Case,
    PackError,
    Vector,
    VectorSearch,
    default_folders,
    find_pack,
    generated,
    golden,
    records,
    write_excerpt,
)

__all__ = [
    "Case",
    "PackError",
    "Vector",
    "VectorSearch",
    "default_folders",
    "find_pack",
    "generated",
    "golden",
    "records",
    "write_excerpt",
]
