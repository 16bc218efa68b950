"""A running service for the tests of a module, and two of its clients."""

from collections.abc import Iterator

import pytest

from tests.verbs_service.running import End, Service, connected, running


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("service")) as found:
        yield found


@pytest.fixture(scope="module")
def pair(service: Service) -> tuple[End, End]:
    return connected(service)
