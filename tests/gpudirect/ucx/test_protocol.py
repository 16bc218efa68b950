"""The protocol that UCX chooses, and its settings."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmawire.errors import TransferError
from rdmawire.gpudirect.ucx import (
    AUTO_THRESHOLDS,
    VARIABLES,
    AmId,
    BufferMemory,
    MemoryType,
    Protocol,
    UcxConfig,
    choose,
    fragments,
    read_config,
)

HOST = BufferMemory(MemoryType.HOST)
CUDA = BufferMemory(MemoryType.CUDA)
FAR = BufferMemory(MemoryType.CUDA, is_registered=False)


@pytest.mark.parametrize(
    ("memory", "table"),
    [
        # ucx_info of rc_mlx5 in openucx/ucx issue 11097, for fast completion.
        (
            HOST,
            {
                "egr/short": (0, 2038),
                "egr/single/bcopy": (2039, 8246),
                "egr/multi/bcopy": (8247, 16676),
                "egr/multi/zcopy": (16677, 262143),
                "rndv/get/zcopy": (262144, 1 << 40),
            },
        ),
        # UCX's frequently asked questions: osu_bw between GPUs.
        (
            CUDA,
            {
                "egr/single/zcopy": (0, 8246),
                "egr/multi/zcopy": (8247, 811555),
                "rndv/get/zcopy": (811556, 1 << 40),
            },
        ),
        (FAR, {"egr/single/bcopy": (0, 8246), "rndv/put/mtype": (8247, 1 << 40)}),
    ],
)
def test_the_published_tables(memory: BufferMemory, table: dict[str, tuple[int, int]]) -> None:
    for name, ends in table.items():
        for size in ends:
            assert choose(size, UcxConfig(), memory, memory) is Protocol(name)


@pytest.mark.parametrize(
    ("scheme", "sender", "receiver", "protocol"),
    [
        ("auto", CUDA, CUDA, "rndv/get/zcopy"),
        ("put_zcopy", CUDA, CUDA, "rndv/put/zcopy"),
        ("get_ppln", CUDA, CUDA, "rndv/get/mtype"),
        ("put_ppln", CUDA, CUDA, "rndv/put/mtype"),
        ("auto", CUDA, FAR, "rndv/get/mtype"),
        ("put_zcopy", CUDA, FAR, "rndv/get/mtype"),
        ("put_ppln", CUDA, FAR, "rndv/put/mtype"),
        ("get_zcopy", FAR, CUDA, "rndv/put/mtype"),
        ("get_ppln", FAR, FAR, "rndv/put/mtype"),
        ("put_ppln", HOST, HOST, "rndv/get/zcopy"),
        ("get_ppln", CUDA, HOST, "rndv/get/zcopy"),
        ("put_ppln", HOST, FAR, "rndv/put/mtype"),
    ],
)
def test_schemes_that_memory_does_not_allow_are_replaced(
    scheme: str, sender: BufferMemory, receiver: BufferMemory, protocol: str
) -> None:
    config = UcxConfig(rndv_thresh=1, rndv_scheme=scheme)
    assert choose(1 << 20, config, sender, receiver) is Protocol(protocol)


@pytest.mark.parametrize(
    ("settings", "size", "protocol"),
    [
        (["UCX_RNDV_THRESH=0"], 1, "rndv/get/zcopy"),
        (["UCX_RNDV_THRESH=0"], 0, "egr/short"),
        (["UCX_RNDV_THRESH=inf"], 1 << 20, "egr/multi/zcopy"),
        (["UCX_RNDV_SEND_NBR_THRESH=64k"], 65536, "rndv/get/zcopy"),
        (["UCX_ZCOPY_THRESH=1"], 100, "egr/single/zcopy"),
        (["UCX_ZCOPY_THRESH=inf"], 20_000, "egr/multi/bcopy"),
        (["UCX_BCOPY_THRESH=0"], 8, "egr/single/bcopy"),
        (["UCX_TLS=rc_verbs"], 55, "egr/short"),
        (["UCX_TLS=rc_verbs"], 56, "egr/single/bcopy"),
        (["UCX_RC_SEG_SIZE=1k"], 2000, "egr/multi/bcopy"),
        (["UCX_RC_MLX5_DM_SIZE=64"], 55, "egr/single/bcopy"),
    ],
)
def test_settings(settings: list[str], size: int, protocol: str) -> None:
    assert choose(size, read_config(settings), HOST, HOST) is Protocol(protocol)


def test_defaults_are_those_of_the_variables() -> None:
    written = [f"{name}={variable.default}" for name, variable in VARIABLES.items()]
    assert read_config(written) == read_config() == UcxConfig()
    assert {variable.field for variable in VARIABLES.values()} == set(UcxConfig._fields)


def test_the_page_has_the_variables_and_the_thresholds() -> None:
    page = (Path(__file__).parents[3] / "docs/howto/ucx.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `UCX_")]
    assert [row.split("|")[1:3] for row in rows] == [
        [f" `{name}` ", f" `{variable.default}` "] for name, variable in VARIABLES.items()
    ]
    for thresholds in AUTO_THRESHOLDS.values():
        assert thresholds.source in page.replace("`", "")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("UCX_NO=1", "no NAME=VALUE with one of UCX_TLS"),
        ("UCX_TLS", "no NAME=VALUE"),
        ("UCX_TLS=tcp", "there are rc_verbs, rc_mlx5"),
        ("UCX_RNDV_THRESH=long", "a size such as 64k, inf or auto"),
        ("UCX_RNDV_SCHEME=rkey_ptr", "there are auto, get_zcopy"),
        ("UCX_RNDV_FRAG_SIZE=host:1", "256 to 1073741824 bytes"),
        ("UCX_RC_SEG_SIZE=inf", "128 to 65536 bytes"),
        ("UCX_RNDV_PUT_FORCE_FLUSH=1", "there are y, n"),
    ],
)
def test_settings_that_cannot_be(setting: str, message: str) -> None:
    with pytest.raises(TransferError, match=message):
        read_config([setting])


def test_fragments_of_host_memory_count() -> None:
    assert read_config(["UCX_RNDV_FRAG_SIZE=host:1m,cuda:4m"]).rndv_frag_size == 1 << 20
    assert read_config(["UCX_RNDV_FRAG_SIZE=64K"]).rndv_frag_size == 1 << 16


@given(
    st.integers(0, 1 << 20),
    st.integers(128, 1 << 16),
    st.sampled_from(["rc_mlx5", "rc_verbs"]),
)
def test_fragments_cover_a_message(size: int, segment: int, tls: str) -> None:
    config = UcxConfig(tls=tls, rc_seg_size=segment)
    parts = fragments(size, config)
    head = 2 if tls == "rc_mlx5" else 1
    header = {AmId.EAGER_ONLY: 8, AmId.EAGER_FIRST: 24, AmId.EAGER_MIDDLE: 16}
    position = 0
    for part in parts:
        assert part.offset == position
        assert head + header[part.am_id] + part.size <= segment
        position += part.size
    assert position == size
    ids = [part.am_id for part in parts]
    middle = [AmId.EAGER_MIDDLE] * (len(ids) - 1)
    assert ids == ([AmId.EAGER_FIRST, *middle] if middle else [AmId.EAGER_ONLY])
