"""Profiles: found by name, each field explained, and where soft-RoCE is different."""

import ast
import inspect
from dataclasses import fields
from errno import EINVAL
from itertools import pairwise

import pytest

from rdmawire.errors import VerbsError
from rdmawire.verbs import profile
from rdmawire.verbs.profile import IBTA, PROFILES, RXE, Profile, named
from rdmawire.wire.ib import RNR_TIMER_NS, Nak

QUIRKS = (
    *("endless_retry_cnt", "packets_per_ack", "packets_in_flight", "rnr_timer_ns", "too_long"),
    *("reads_beyond", "ignores_srq_pd", "naks_malformed_requests", "local_inv_waits"),
    *("validates_duplicates", "acks_newest", "naks_gaps_after_rnr", "first_may_fit"),
    *("receives_have_grh", "end_to_end_credits"),
    *("memory_management_error", "flush_icrc_covers_headers_twice"),
)


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_is_found_by_its_name(name: str) -> None:
    assert named(name).name == name


def test_an_unknown_name_is_answered_with_the_names_there_are() -> None:
    with pytest.raises(VerbsError, match="'mlx9': there are ibta, rxe") as caught:
        named("mlx9")
    assert caught.value.errno == EINVAL


def test_every_field_is_documented_by_its_row() -> None:
    [body] = [
        node.body
        for node in ast.parse(inspect.getsource(profile)).body
        if isinstance(node, ast.ClassDef) and node.name == "Profile"
    ]
    rows = dict(pairwise(body))
    declared = [row for row in body if isinstance(row, ast.AnnAssign)]
    assert len(declared) == len(fields(Profile))
    for row in declared:
        explained = rows[row]
        assert isinstance(explained, ast.Expr), ast.unparse(row)
        assert isinstance(explained.value, ast.Constant), ast.unparse(row)


@pytest.mark.parametrize("device", PROFILES.values(), ids=lambda device: device.name)
def test_a_profile_makes_sense(device: Profile) -> None:
    assert len(device.rnr_timer_ns) == 32
    assert 0 < device.packets_per_ack <= device.packets_in_flight < 1 << 23
    assert device.max_qp_rd_atom <= device.max_res_rd_atom
    assert device.max_mcast_qp_attach <= device.max_total_mcast_qp_attach
    for limit in ("max_qp", "max_qp_wr", "max_sge", "max_srq_wr", "max_cqe", "phys_port_cnt"):
        assert getattr(device, limit) > 0


@pytest.mark.parametrize("device", PROFILES.values(), ids=lambda device: device.name)
def test_moderation_fits_ibv_moderate_cq(device: Profile) -> None:
    """There, both are 16 bits, and the period counts microseconds."""
    assert device.max_cq_count <= 0xFFFF
    assert device.max_cq_period <= 0xFFFF * 1000


def test_soft_roce_differs_from_the_standard_in_what_it_does() -> None:
    assert all(getattr(RXE, quirk) != getattr(IBTA, quirk) for quirk in QUIRKS)
    assert (IBTA.too_long, RXE.too_long) == (Nak.INVALID_REQUEST, Nak.REMOTE_OPERATIONAL_ERROR)
    assert (IBTA.endless_retry_cnt, RXE.endless_retry_cnt) == (None, 7)


def test_soft_roces_rnr_timers_slip_at_one_place() -> None:
    slips = {i for i in range(32) if RXE.rnr_timer_ns[i] != RNR_TIMER_NS[i]}
    assert slips == {25}
    assert IBTA.rnr_timer_ns == RNR_TIMER_NS
