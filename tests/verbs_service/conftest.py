"""A running service for the tests of a module, and two of its clients."""

from collections.abc import Iterator

import pytest

from rdmawire.verbs_service.capture import Capture
from rdmawire.verbs_service.network import DirectNetwork
from tests.verbs_service.running import End, Service, connected, running


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("service")) as found:
        yield found


@pytest.fixture(scope="module", params=["without packets", "captured"])
def direct_service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """A service whose messages need no packets, and one with a capture of all packets."""
    folder = tmp_path_factory.mktemp("service")
    capture = Capture(folder / "all.pcap") if request.param == "captured" else None
    with running(folder, DirectNetwork(capture)) as found:
        yield found


@pytest.fixture(scope="module")
def pair(service: Service) -> tuple[End, End]:
    return connected(service)
