"""Connections to Dask clusters that cannot be used."""

import socket

import pytest
from distributed import LocalCluster

from rdmawire import cluster as module
from rdmawire.cluster import cluster
from rdmawire.errors import ClusterError


def test_workers_of_another_version_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "__version__", "0.0.1")
    with (
        LocalCluster(
            n_workers=1, processes=False, protocol="tcp", dashboard_address=None, host="127.0.0.1"
        ) as local,
        pytest.raises(ClusterError, match=r"not 0\.0\.1: install it there"),
        cluster(local.scheduler_address),
    ):
        pass


def test_a_server_that_is_no_scheduler_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TIMEOUT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ClusterError, match="no Dask scheduler at"), cluster(address):
            pass
