"""A service with the files that programs need, and programs that run on it."""

import gc
import os
import resource
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

from rdmawire.errors import FabricError, VerbsError
from rdmawire.fabric import Place
from rdmawire.topology import Device, Machine
from rdmawire.traffic.scenario import read_scenario, read_shipped, shipped
from rdmawire.verbs_service.capture import Capture
from rdmawire.verbs_service.counters import counter_words
from rdmawire.verbs_service.device import DeviceSpec, EmulatedDevice, numbered
from rdmawire.verbs_service.diagnostics import warn
from rdmawire.verbs_service.fabric_network import (
    FabricNetwork,
    devices_of,
    of_scenario,
    one_link,
    parse_link,
)
from rdmawire.verbs_service.network import DeviceNetwork, DirectNetwork
from rdmawire.verbs_service.pci_layout import plain_host
from rdmawire.verbs_service.program import ProgramFiles
from rdmawire.verbs_service.protocol import COUNTERS
from rdmawire.verbs_service.server import Server
from rdmawire.verbs_service.sysfs import CounterFiles
from rdmawire.verbs_service.udp_network import UdpNetwork, parse_udp

_TICK = 1.0
"""Seconds between two updates of the counters in the private ``/sys``.

For programs that the preload library does not serve: it has them updated whenever they are read.
"""
_FILES_AT_ONCE = 4
"""Counters that are written between two steps of the service."""
_FEW_FILES = 256
"""Open files that a service needs for about twenty programs; a lower limit is noted."""
_RATE = 100.0
_GIGABIT = 1e9


class SessionSettings(NamedTuple):
    """What a session serves.

    ``network`` is as in :func:`~rdmawire.verbs_service.network_of`. ``devices`` is the number of
    devices, by default two, or the adapters of ``host``, at whose places they are then.
    ``first_address`` is the number of the first device's address, so that joined services have
    different ones. Frames are captured to the file or FIFO ``pcap``.
    """

    devices: int | None = None
    network: str = ""
    pcap: Path | None = None
    host: Machine | None = None
    first_address: int = 1


class VerbsSession:
    """A service on the socket of ``files``, which it writes beside it. :meth:`close` ends it.

    ``notes`` has a sentence for each library or device that is missing, and for a low limit of open
    files.

    Raises ``LibraryError`` without the stand-in libraries, ``VerbsError`` if a service runs on the
    socket, ``FabricError`` or ``ScenarioError`` for a wrong network, ``TopologyError`` for a host
    that has no adapter, and ``OSError`` for a file that cannot be made.
    """

    def __init__(self, files: ProgramFiles, settings: SessionSettings) -> None:
        self.files = files
        self._ended = self._is_stale = False
        self._capture: Capture | None = None
        self.notes = _allow_descriptors()
        files.claim()
        try:
            if settings.pcap is not None:
                self._capture = Capture(settings.pcap)
            network, specs = _devices(settings, self._capture)
            machine = settings.host or plain_host([spec.name for spec in specs])
            rates = [spec.rate for spec in specs]

            def write_files(devices: Sequence[EmulatedDevice]) -> None:
                self.notes += self.files.write(machine, devices, rates)

            self.server = Server(self.files.socket, specs, network, prepare=write_files)
            self._counters = CounterFiles(self.files.folder, self.server.devices)
            self.server.write_counters = self._counters.write
        except BaseException:
            if self._capture is not None:
                self._capture.close()
            self.files.remove()
            raise

    def serve(self, on_tick: Callable[[], None] | None = None) -> None:
        """Serve until :meth:`stop`, and call ``on_tick`` every second."""

        def tick() -> None:
            self._counters.find_changed()
            if on_tick is not None:
                on_tick()

        gc.freeze()  # a search for garbage that visits all modules takes milliseconds
        ticker = _Ticker(self.server, tick, self._update_counters)
        try:
            self.server.run()
        finally:
            ticker.close()

    def _update_counters(self) -> bool:
        """Write some of the changed counters to the private ``/sys``. Return whether more are left.

        Print once if that is impossible.
        """
        try:
            return self._counters.write_changed(_FILES_AT_ONCE)
        except OSError as error:
            if not self._is_stale:
                warn(f"counters below {self.files.sysfs} are not updated: {error.strerror}")
            self._is_stale = True
            return self._counters.has_changes

    def start(
        self, words: Sequence[str], environment: Mapping[str, str], *, preload: bool = True
    ) -> "subprocess.Popen[bytes]":
        """Start a program on the devices; :meth:`serve` returns when it has ended.

        ``OSError`` if it cannot be started.
        """
        own = self.files.command_variables(environment, preload=preload)
        child = subprocess.Popen(words, env={**environment, **own})  # noqa: S603  the user's command
        ended = os.pidfd_open(child.pid)

        def stop(_: int) -> None:
            self.server.loop.unregister(ended)
            os.close(ended)
            self.server.stop()

        self.server.loop.register(ended, stop)
        return child

    def stop(self) -> None:
        """Let :meth:`serve` return."""
        self.limit_wait()
        self.server.stop()

    def limit_wait(self) -> None:
        """Wait for a slow reader of the capture 2 s at most. Signal handlers may call this."""
        if self._capture is not None:
            self._capture.limit_wait()

    def counters(self) -> dict[str, dict[str, int]]:
        """Return the counters of each device, by names."""
        return {
            device.name: dict(zip(COUNTERS, counter_words(device, ()), strict=True))
            for device in self.server.devices
        }

    def end_service(self) -> None:
        """Disconnect all programs, complete the capture, and remove the socket."""
        if not self._ended:
            self._ended = True
            self.server.close()

    def close(self) -> None:
        """End the service, and remove the files but the libraries."""
        self.end_service()
        self.files.remove()


class _Ticker:
    """Calls a function in the loop of a service every :data:`_TICK` seconds.

    Then it calls ``work`` after each step of the service, until ``work`` returns ``False``.
    """

    def __init__(self, server: Server, call: Callable[[], None], work: Callable[[], bool]) -> None:
        self._server = server
        self._ended = Event()
        self._alarm, self._again = (
            os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for _ in range(2)
        )

        def begin(_: int) -> None:
            os.eventfd_read(self._alarm)
            call()
            os.eventfd_write(self._again, 1)

        def work_on(_: int) -> None:
            if not work():
                os.eventfd_read(self._again)

        server.loop.register(self._alarm, begin)
        server.loop.register(self._again, work_on)
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(_TICK):
            os.eventfd_write(self._alarm, 1)

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        for fd in self._alarm, self._again:
            self._server.loop.unregister(fd)
            os.close(fd)


def network_of(
    text: str, devices: int, capture: Capture | None = None
) -> tuple[DeviceNetwork, Sequence[DeviceSpec]]:
    """Return the network that a text describes, and its devices.

    Without text the devices are joined directly. ``loss=0.001,latency=10us,rate=25G`` puts a link
    between them, ``udp=PORT,peer=HOST:PORT`` joins services. Any other text is the name of a
    shipped scenario or the path of one, whose hosts are the devices. ``FabricError`` or
    ``ScenarioError`` for what is wrong.
    """
    if not text:
        return DirectNetwork(capture), numbered(devices)
    if "udp=" in text:
        return UdpNetwork(parse_udp(text), capture), numbered(devices)
    if "=" in text:
        return FabricNetwork(one_link(parse_link(text)), capture), numbered(devices)
    if text in shipped():
        scenario = read_shipped(text)
    elif os.path.exists(text):
        scenario = read_scenario(text)
    else:
        raise FabricError(
            f"network {text!r}: neither a setting such as loss=0.001, nor a scenario of"
            " `rdmawire run --list`, nor the file of one"
        )
    return FabricNetwork(of_scenario(scenario), capture), devices_of(scenario)


def _allow_descriptors() -> tuple[str, ...]:
    """Raise the limit of open descriptors: each CQ, channel and context has some.

    Returns a sentence if few are allowed.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard == resource.RLIM_INFINITY or hard >= _FEW_FILES:
        return ()
    text = "few programs can use the devices at once; raise the limit for more"
    return (f"{hard} open files at most (ulimit -Hn): {text}",)


def _devices(
    settings: SessionSettings, capture: Capture | None
) -> tuple[DeviceNetwork, Sequence[DeviceSpec]]:
    """Return the network, and devices: those of a scenario, of a host, or numbered ones."""
    network, specs = network_of(settings.network, settings.devices or 2, capture)
    if settings.network and "=" not in settings.network:
        if settings._replace(pcap=None) != SessionSettings(None, settings.network):
            raise FabricError(
                f"network {settings.network}: the devices are the hosts of this scenario, so give"
                " neither their number nor a host or first address"
            )
        return network, specs
    adapters = _adapters(settings)
    places = _places(settings.first_address, len(adapters))
    return network, [
        DeviceSpec(name, place, rate=rate / _GIGABIT if rate else _RATE)
        for (name, rate), place in zip(adapters, places, strict=True)
    ]


def _places(first: int, count: int) -> list[Place]:
    """Return ``count`` addresses from number ``first`` on; ``FabricError`` if some do not exist."""
    try:
        return [Place.numbered(number) for number in range(first, first + count)]
    except VerbsError:
        raise FabricError(
            f"{count} devices from 10.0.0.{first} on do not fit below 10.0.0.255: give a smaller"
            " --first-address, or fewer --devices"
        ) from None


def _adapters(settings: SessionSettings) -> list[tuple[str, int | None]]:
    """Return the names of devices, and their rates in bits per second where they are known."""
    if settings.host is None:
        return [(f"rw{number}", None) for number in range(settings.devices or 2)]
    found: list[Device] = settings.host.adapters
    count = len(found) if settings.devices is None else settings.devices
    if not 0 < count <= len(found):
        raise FabricError(f"{settings.host.name}: {len(found)} adapters, and {count} are needed")
    return [(adapter.name, adapter.rate) for adapter in found[:count]]
