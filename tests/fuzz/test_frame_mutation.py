"""Mutations of frames: repeatable, named by the tables, with good, stale or broken checksums."""

import json
from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest

from rdmawire.capture import LinkType
from rdmawire.decode import walk_frame
from rdmawire.errors import FuzzError
from rdmawire.fuzz.frame_map import NO_FRAME, map_frame, sealed, with_broken_checksum
from rdmawire.fuzz.frame_mutation import (
    KINDS,
    Mutant,
    Mutation,
    SeedFrame,
    mutants_as_json,
    mutants_from_json,
)
from rdmawire.fuzz.mutator import MAX_SEQUENCE, Mutator, boundary_values, number_of
from rdmawire.fuzz.seed_corpus import SeedCorpus, corpus_of, kind_of
from rdmawire.wire import ib, native, roce
from rdmawire.wire.mpa import FPDULength, MPARequest
from rdmawire.wire.opcode import Opcode

CORPUS = corpus_of()


HEALTHY = [frame for frame in CORPUS.frames() if not frame.name.startswith("faulty/")]
LINKS = {LinkType.ETHERNET, LinkType.INFINIBAND}


def seed(*labels: str, opcode: int | None = None) -> SeedFrame:
    """The first healthy frame of the corpus with these headers."""
    for frame in HEALTHY:
        if frame.link_type not in LINKS or "snapped" in frame.name:
            continue
        found = map_frame(frame.data, frame.link_type)
        bth = found.find("bth")
        if all(found.find(label) for label in labels) and (
            opcode is None or (bth is not None and getattr(bth.header, "opcode", -1) == opcode)
        ):
            return frame
    raise AssertionError(labels)


def mutant(frame: SeedFrame, *mutations: Mutation, checksum: str = "GOOD") -> bytes:
    return Mutant(frame, mutations, checksum).build()


WRITE = seed("ip", "udp", "reth", opcode=Opcode.RC_RDMA_WRITE_ONLY)


def test_the_corpus_has_every_kind_of_frame() -> None:
    labels = {label for frame in CORPUS.frames() for label in kind_of(frame)}
    wanted = {"ip", "ipv6", "grh", "lrh", "mad", "mpa_request", "mpa_reply", "mpa_fpdu", "cm_req"}
    assert wanted <= labels
    most = Counter(map(kind_of, CORPUS.frames()))
    assert max(most.values()) <= 4


def test_sealing_a_good_frame_changes_nothing() -> None:
    different = [one.name for one in HEALTHY if sealed(one.data, one.link_type) != one.data]
    assert different == []


def test_a_broken_checksum_is_one_bit() -> None:
    for frame in (WRITE, seed("lrh"), seed("mpa_fpdu")):
        broken = with_broken_checksum(frame.data, frame.link_type)
        number = int.from_bytes(broken, "big") ^ int.from_bytes(frame.data, "big")
        assert number.bit_count() == 1
        assert sealed(broken, frame.link_type, map_frame(frame.data, frame.link_type)) == frame.data


def test_a_changed_field_is_sealed() -> None:
    data = mutant(WRITE, Mutation("set", "bth", row="psn", value=0x123456))
    frame = roce.parse(data)
    assert frame.packet.bth.psn == 0x123456
    assert frame.seal() == frame


def test_a_reserved_opcode_still_has_a_good_icrc() -> None:
    data = mutant(WRITE, Mutation("set", "bth", row="opcode", value=0x1F))
    place = roce.bth_offset(data, 0, len(data))
    assert data[place] == 0x1F
    plain = data[:place] + WRITE.data[place : place + 1] + data[place + 1 :]
    assert plain[:-4] == WRITE.data[:-4]
    assert int.from_bytes(data[-4:], "big") == roce.icrc_of(data, 14, place, len(data) - 4)


@pytest.mark.parametrize("checksum", ["STALE", "BROKEN"])
def test_checksums_are_stale_or_broken_on_purpose(checksum: str) -> None:
    data = mutant(WRITE, Mutation("set", "bth", row="psn", value=1), checksum=checksum)
    frame = roce.parse(data)
    assert frame.icrc != frame.expected_icrc()
    assert (frame.icrc == roce.parse(WRITE.data).icrc) is (checksum == "STALE")


@pytest.mark.parametrize(
    "frame", [WRITE, seed("ipv6", "bth"), seed("grh", "bth"), seed("lrh", "bth")]
)
@pytest.mark.parametrize("kind", ["drop", "repeat"])
def test_lengths_follow_a_dropped_or_repeated_header(frame: SeedFrame, kind: str) -> None:
    found = map_frame(frame.data, frame.link_type)
    label = type(found.headers[-1].header).label
    size = found.headers[-1].header.SIZE
    data = mutant(frame, Mutation(kind, label))
    assert len(data) - len(frame.data) == (size if kind == "repeat" else -size)
    ends = [field.end(data) for field in walk_frame(data, frame.link_type).lengths]
    before = [field.end(frame.data) for field in found.lengths]
    assert [end - old for end, old in zip(ends, before, strict=True)] == [
        len(data) - len(frame.data)
    ] * len(before)
    kept = mutant(frame, Mutation(kind, label, lengths=False))
    assert [field.end(kept) for field in found.lengths] == before


def test_a_truncated_native_packet_is_sealed() -> None:
    frame = seed("lrh", "bth", opcode=Opcode.RC_SEND_ONLY)
    data = mutant(frame, Mutation("remove", offset=len(frame.data) - 10, value=4))
    parsed = native.parse(data)
    assert parsed.seal() == parsed


def test_an_fpdu_is_sealed() -> None:
    frame = next(
        one
        for one in CORPUS.frames()
        if map_frame(one.data, one.link_type).fpdus and "crc" in one.name
    )
    data = mutant(frame, Mutation("set", "ddp", row="rsvd", value=5))
    found = map_frame(data, frame.link_type)
    assert found.fpdus
    assert found.find("ddp") is not None
    assert data != frame.data


def test_lengths_of_start_up_frames_and_fpdus_are_length_fields() -> None:
    for label, table in (("mpa_request", MPARequest), ("mpa_fpdu", FPDULength)):
        frame = seed(label)
        found = map_frame(frame.data, frame.link_type)
        place = found.find(label)
        assert place is not None
        assert isinstance(place.header, table)
        assert any(place.offset <= one.offset < place.offset + table.SIZE for one in found.lengths)


def test_an_added_header_follows_the_named_one() -> None:
    data = mutant(WRITE, Mutation("insert", "reth", row="immdt", data=b"\1\2\3\4"))
    found = map_frame(WRITE.data)
    reth = found.find("reth")
    assert reth is not None
    end = reth.offset + ib.RETH.SIZE
    assert data[end : end + 4] == b"\1\2\3\4"


def test_two_frames_are_spliced_at_headers() -> None:
    other = seed("ipv6", "bth")
    place = map_frame(other.data).find("bth")
    here = map_frame(WRITE.data).find("bth")
    assert place is not None
    assert here is not None
    data = mutant(WRITE, Mutation("splice", offset=here.offset, data=other.data[place.offset :]))
    parsed = roce.parse(data)
    assert parsed.packet == roce.parse(other.data).packet
    assert parsed.seal() == parsed


def test_a_mutation_without_its_place_changes_nothing() -> None:
    absent = [
        Mutation("set", "aeth", row="msn", value=1),
        Mutation("set", "bth", row="msn", value=1),
        Mutation("drop", "grh"),
        Mutation("insert", "grh", row="reth"),
        Mutation("write", offset=len(WRITE.data), data=b"\1"),
    ]
    one = Mutant(WRITE, tuple(absent))
    assert one.build() == WRITE.data
    assert all(line.endswith("(no change)") for line in one.describe()[1:])


def every_mutation(frame: SeedFrame) -> Iterator[Mutation]:
    """Boundary values of every row; every header dropped and repeated; every truncation."""
    seen = Counter[str]()
    for _, header in map_frame(frame.data, frame.link_type).headers:
        label, table = type(header).label, type(header)
        for row in table.rows:
            for index in range(row.times):
                for value in boundary_values(row, number_of(header, row, index)):
                    yield Mutation("set", label, seen[label], row.name, index, value)
        for kind in ("drop", "repeat"):
            yield from (Mutation(kind, label, seen[label], lengths=one) for one in (True, False))
        seen[label] += 1
    for offset in range(len(frame.data)):
        yield from (Mutation("truncate", offset=offset, lengths=one) for one in (True, False))


def test_every_single_mutation_of_a_frame_builds_and_has_words() -> None:
    kinds = set()
    for frame in (WRITE, seed("mad", "cm_req"), seed("mpa_reply")):
        seen = set()
        for mutation in every_mutation(frame):
            kinds.add(mutation.kind)
            one = Mutant(frame, (mutation,))
            seen.add(one.build())
            assert len(one.describe()) == 2
        assert len(seen) > len(frame.data)
    assert kinds == {"set", "drop", "repeat", "truncate"}


def test_boundary_values_are_of_the_width_the_enum_and_the_value() -> None:
    row = next(row for row in ib.BTH.rows if row.name == "psn")
    values = boundary_values(row, 1000)
    assert {0, 1, 999, 1001, 0xFFFFFF, 0xFFFFFE, 0x7FFFFF, 0x800000} <= set(values)
    assert 1000 not in values
    opcode = next(row for row in ib.BTH.rows if row.name == "opcode")
    assert set(Opcode) - {4} <= set(boundary_values(opcode, 4))


def test_mutants_are_repeatable_and_written_as_json() -> None:
    one, other = (Mutator(Random(5), CORPUS) for _ in range(2))
    kinds = set()
    for _ in range(400):
        made = one.mutant()
        assert made == other.mutant()
        (again,) = mutants_from_json(json.loads(json.dumps(mutants_as_json([made]))))
        assert again == made
        assert again.build() == made.build()
        kinds |= {mutation.kind for mutation in made.mutations}
    assert kinds == set(KINDS)


def test_sequences_are_of_one_capture_with_something_wrong() -> None:
    mutator = Mutator(Random(1), CORPUS)
    for _ in range(100):
        frames = mutator.sequence()
        assert len(frames) <= MAX_SEQUENCE + 1
        assert sum(bool(one.mutations) for one in frames) <= 1


def test_bytes_that_are_no_frame_are_changed_as_bytes() -> None:
    texts = SeedCorpus([[SeedFrame(b"udp and tcp", NO_FRAME, "text"), SeedFrame(b"", NO_FRAME)]])
    mutator = Mutator(Random(2), texts)
    made = [mutator.mutant() for _ in range(200)]
    assert {mutation.kind for one in made for mutation in one.mutations} == {
        *("write", "remove", "extend", "truncate", "splice")
    }
    assert len({one.build() for one in made}) > 80


BAD = [
    {"data": "00", "mutations": [{"kind": "bend"}]},
    {"data": "00", "mutations": [{"kind": "set", "vaule": 1}]},
    {"data": "00", "mutations": [{"kind": "set", "value": "1"}]},
    {"data": "00", "mutations": [{"kind": "set", "value": -1}]},
    {"data": "00", "mutations": [{"kind": "set", "lengths": 1}]},
    {"data": "0", "mutations": []},
    {"data": "00", "mutations": [], "checksum": "WORSE"},
    {"data": "00", "mutations": [], "link_type": "x"},
    {"data": "00", "mutations": [{"kind": "drop"}] * 65},
    {"data": "00"},
    3,
]


@pytest.mark.parametrize("values", BAD)
def test_invalid_json_is_refused(values: object) -> None:
    with pytest.raises(FuzzError):
        mutants_from_json({"inputs": [values]})
    with pytest.raises(FuzzError):
        mutants_from_json(values)


def test_a_corpus_needs_frames() -> None:
    with pytest.raises(FuzzError):
        SeedCorpus([[]])
