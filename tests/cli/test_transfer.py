"""`rdmawire transfer`: the table, links, captures and errors."""

import json
from pathlib import Path

import pytest

from tests.cli.command import rdmawire as run


def test_each_path_has_a_line() -> None:
    lines = run("transfer", "dgx-h200", "--size", "8", "--size", "64k").stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        [size, path]
        for size in ("8", "65536")
        for path in ("direct", "bounce", "pageable", "tcp", "nvlink")
    ]


def test_paths_that_a_host_does_not_have_are_explained() -> None:
    done = run("transfer", "two-sockets", "--size", "8", "--size", "16")
    assert done.stdout.count("direct: mlx5_0 may not access GPU1") == 1
    assert done.returncode == 0
    only = run("transfer", "two-sockets", "--size", "8", "--path", "nvlink")
    assert only.stdout == "nvlink: GPU0 and GPU1 have no NVLinks\n"
    assert only.returncode == 2


def test_links_are_listed() -> None:
    wanted = ("--path", "direct", "--size", "4096", "--links", "--to", "GPU0")
    text = run("transfer", "two-sockets", *wanted).stdout
    assert "  sender: GPU0 -> sw0: 4096 bytes in 16 transactions, busy" in text


def test_json_has_all() -> None:
    done = run("transfer", "dgx-h200", "--path", "bounce", "--size", "1k", "--json")
    (found,) = json.loads(done.stdout)
    assert found["copies"] == 2
    assert {link["bytes"] for link in found["links"]} == {1024}
    (none,) = json.loads(
        run("transfer", "workstation", "--path", "nvlink", "--size", "1k", "--json").stdout
    )
    assert none == {"path": "nvlink", "bytes": 1024, "reason": "GPU0 and GPU0 have no NVLinks"}


def test_a_capture_is_written(tmp_path: Path) -> None:
    path = tmp_path / "direct.pcap"
    run("transfer", "dgx-h200", "--path", "direct", "--size", "64k", "-w", str(path))
    shown = run("dissect", str(path), "--checksums", "icrc").stdout
    assert shown.count("WRITE") == 16
    assert "bad" not in shown.lower()


@pytest.mark.parametrize("suffix", ["pcap", "pcapng"])
def test_a_capture_of_infiniband_is_written(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"native.{suffix}"
    words = ("--link-layer", "infiniband", "--path", "bounce", "--size", "64k", "-w", str(path))
    run("transfer", "dgx-h200", *words)
    done = run("dissect", "-q", "--fail-on-bad-checksum", "--fail-on-malformed", str(path))
    assert done.returncode == 0
    assert "17 frames; ICRC 17 good; VCRC 17 good; none malformed" in done.stderr + done.stdout
    shown = run("dissect", "-c", "1", str(path)).stdout
    assert "lid 2 → lid 4" in shown


def test_infiniband_has_rates_of_its_own() -> None:
    words = ("transfer", "dgx-h200", "--link-layer", "infiniband", "--path", "host", "--size", "8")
    (found,) = json.loads(run(*words, "--rate", "56g", "--json").stdout)
    assert (found["link_layer"], found["copies"], found["frames"]) == ("infiniband", 0, 2)
    done = run(*words, "--rate", "90g")
    assert done.returncode == 2
    assert done.stdout.startswith("host: no InfiniBand link has 90 Gbit/s; four lanes have 10, 20,")


def test_paths_that_infiniband_does_not_carry_are_explained() -> None:
    done = run("transfer", "dgx-h200", "--link-layer", "infiniband", "--size", "8")
    assert [line.split()[1] for line in done.stdout.splitlines()[1:5]] == [
        "direct", "bounce", "pageable", "nvlink",
    ]  # fmt: skip
    reason = "tcp: TCP over InfiniBand (IPoIB) is not modelled: it takes Ethernet"
    assert done.stdout.splitlines()[5] == reason


def test_ordered_writes_are_slow() -> None:
    words = ("transfer", "dgx-h200", "--path", "host", "--size", "1M", "--json")
    rates = [
        json.loads(run(*words, "--relaxed-ordering", mode).stdout)[0]["bytes_per_s"]
        for mode in ("on", "off")
    ]
    assert rates[0] > 2 * rates[1]


def test_a_host_is_read_from_standard_input() -> None:
    from rdmawire.traffic.scenario.topology_file import open_host

    assert open_host("vm").machine.gpus
    text = Path("rdmawire/traffic/hosts/vm.yaml").read_text(encoding="utf-8")
    done = run("transfer", "-", "--size", "8", "--path", "bounce", stdin=text.encode())
    assert "bounce" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("no-such-host",), "'no-such-host': no such file or directory"),
        (("dgx-h200", "--size", "many"), "'many' is no number of bytes"),
        (("dgx-h200", "--size", "2GiB"), "at most 1073741824"),
        (("dgx-h200", "-w", "x.pcap"), "-w needs one --path and one --size"),
        (("dgx-h200", "-w", "x.pcap", "--path", "nvlink", "--size", "8"), "nvlink has no packets"),
        (("dgx-h200", "--from", "GPU9"), "no device is called 'GPU9'"),
        (("",), "the name of the host is empty; shipped hosts are dgx-h100"),
    ],
)
def test_what_cannot_be_is_one_line(words: tuple[str, ...], message: str) -> None:
    done = run("transfer", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_every_error_of_constants_has_a_line(tmp_path: Path) -> None:
    path = tmp_path / "costs.yaml"
    path.write_text("costs: a\nib_switch_latency: -5\nordered_write_rate: 0\n")
    done = run("transfer", "dgx-h200", "--size", "8", "--costs", str(path))
    assert done.returncode == 2
    assert [line.split(":")[2] for line in done.stderr.splitlines()] == ["2", "3"]


def test_a_transfer_that_takes_too_long_has_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "costs.yaml"
    path.write_text("costs: a\nordered_write_rate: 0.0000001\n")
    words = ("--path", "direct", "--path", "host", "--relaxed-ordering", "off")
    done = run("transfer", "dgx-h200", "--size", "8", *words, "--costs", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert "host: the transfer does not end: not at rest after 3600000000000 ns" in done.stdout


def test_times_are_drawn(tmp_path: Path) -> None:
    path = tmp_path / "times.svg"
    run("transfer", "dgx-h200", "--size", "8", "--size", "64", "--plot", str(path))
    links = tmp_path / "links.svg"
    words = ("transfer", "dgx-h200", "--path", "direct", "--plot-links", str(links))
    run(*words, "--size", "8")
    assert "<!-- 8 bytes by direct, dgx-h200 -->" in links.read_text(encoding="utf-8")
    refused = run(*words)
    assert refused.returncode == 2
    assert "--plot-links needs one --path and one --size" in refused.stderr
    assert "<!-- bounce -->" in path.read_text(encoding="utf-8")


def test_registrations_are_counted() -> None:
    wanted = ("--path", "direct", "--size", "64k", "--repeat", "3", "--registration", "cache")
    lines = run("transfer", "dgx-h200", *wanted).stdout.splitlines()
    assert lines[0].split()[2:4] == ["first", "later"]
    assert lines[2].startswith(
        "65536 bytes by direct: 2 regions registered, 0 deregistered, 4 hits"
    )
    (found,) = json.loads(run("transfer", "dgx-h200", *wanted, "--via", "dmabuf", "--json").stdout)
    assert found["registrations"]["registered"] == 2
    assert len(found["durations_ns"]) == 3
    assert found["durations_ns"][0] == found["duration_ns"] > found["durations_ns"][1]


def test_translations_are_counted() -> None:
    wanted = ("two-sockets", "--path", "bounce", "--size", "8", "--iommu", "translated")
    assert run("transfer", *wanted).stdout.splitlines()[-1] == (
        "8 bytes by bounce: IO-TLB: 0 hits, 3 missed; accesses waited 1.0 us in all"
    )
    text = run("transfer", *wanted, "--ats").stdout
    assert "8 bytes by bounce: ATS: 0 hits, 1 missed; IO-TLB: 0 hits, 3 missed" in text
    (found,) = json.loads(run("transfer", *wanted, "--json").stdout)
    assert found["translations"]["misses"] == 3
    assert run("transfer", *wanted, "--iommu-page", "5000").returncode == 2


def test_too_many_repetitions_are_refused() -> None:
    done = run("transfer", "dgx-h200", "--size", "1G", "--repeat", "2", "--path", "direct")
    assert done.returncode == 2
    assert "all together may have 1073741824 bytes" in done.stdout
