"""The service: clients on a Unix socket, their contexts, and the devices they use."""

import os
import socket
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from errno import EBADF, EINVAL, EIO, ENODEV, ENOMEM, EPROTO
from fcntl import F_GET_SEALS, fcntl
from functools import partial
from pathlib import Path
from select import EPOLLET, EPOLLIN
from typing import Final

from rdmawire.errors import VerbsError
from rdmawire.ib import QueuePair
from rdmawire.ib.cm import CMSettings
from rdmawire.live import Loop, entropy, now
from rdmawire.live.loop import YIELDS
from rdmawire.units import ms, us
from rdmawire.verbs_service import protocol
from rdmawire.verbs_service.attributes import device_words
from rdmawire.verbs_service.calls import Calls
from rdmawire.verbs_service.cm import SESSION_KINDS, CmSession, ConnectionService
from rdmawire.verbs_service.cm_calls import PREFIX, ConnectionCalls
from rdmawire.verbs_service.connection import (
    NO_VALUES,
    ClientGone,
    ControlConnection,
    Reply,
    Request,
)
from rdmawire.verbs_service.context import CONTEXT_KINDS, Context, DeviceFile
from rdmawire.verbs_service.counters import counter_words
from rdmawire.verbs_service.device import DeviceSpec, EmulatedDevice
from rdmawire.verbs_service.diagnostics import warn
from rdmawire.verbs_service.failures import Failures, responsible_client
from rdmawire.verbs_service.network import DeviceNetwork
from rdmawire.verbs_service.posting import take_receives, take_work
from rdmawire.verbs_service.process_memory import ProcessMemory, Turns
from rdmawire.verbs_service.protocol import WORK_RING_BYTES
from rdmawire.verbs_service.ring import MAX_BATCH, RingError, fence
from rdmawire.verbs_service.service_socket import check_socket_path, listen, remove_dead

_NODE_CA: Final = 1
_NAME_WORDS: Final = 8
_FLUSH_PERIOD: Final = ms(1)
_MOVE_PERIOD: Final = us(50)
"""Maximum time (ns) between checks of frames and timers while messages need no frames."""
_MAX_READS: Final = 3
"""Maximum times that a ring is read before the next: a send often follows a receive at once."""
_MAX_MOVES: Final = 8
"""Maximum times that frames are moved in one step before rings are read again."""
_MAX_CLOSING: Final = ms(2)
"""Time (ns) in each step for destroying the objects of clients that are gone."""
_MAX_MOVING: Final = ms(2)
"""Time (ns) after which frames are not moved again in the same step."""


class Client:
    """A connection; its context once it has opened a device, or its session with the manager."""

    def __init__(self, connection: ControlConnection) -> None:
        self.connection = connection
        self.greeted = False
        self.context: Context | None = None
        self.session: CmSession | None = None
        self.waits = False
        """Whether its requests wait until its library has copied: the memory may be in use."""

    def owns(self, thing: object) -> bool:
        """Whether an object of the engine or of the service belongs to this client."""
        parts = self.context, self.session
        return any(part.owns(thing) for part in parts if part is not None)

    @property
    def name(self) -> str:
        """The process, and the device that it has opened, for messages."""
        pid = self.connection.pid
        return f"process {pid}" + (f" on {self.context.device.name}" if self.context else "")


class Server:
    """Serves devices on a Unix socket. Drives them in real time: :class:`rdmawire.live.Driver`.

    ``cm_settings`` are the times and retries of the connection managers. ``yields`` is how often it
    yields the processor before it sleeps: 0 in a program whose other threads need the interpreter.
    ``prepare`` is called with the devices before the socket is there: it writes what programs need.
    """

    def __init__(
        self,
        path: Path,
        specs: Sequence[DeviceSpec],
        network: DeviceNetwork,
        cm_settings: CMSettings | None = None,
        *,
        yields: int = YIELDS,
        prepare: Callable[[Sequence[EmulatedDevice]], None] | None = None,
    ) -> None:
        self.path = path
        self.network = network
        self.loop = Loop(yields)
        random = entropy()
        self.devices = [EmulatedDevice(spec, network.resolve, random) for spec in specs]
        for device in self.devices:
            device.nic.device.fetch_receives = partial(self._fetch_receives, device)
            device.nic.device.failed = self._queue_pair_failed
        network.attach(self.devices)
        self.cm = ConnectionService(
            self.devices, network.resolve, random, cm_settings, failed=self._failed
        )
        self._failures = Failures()
        self._turns = Turns()
        self._ending: dict[Client, None] = {}
        """The clients whose work raised an exception: they are dropped in the next step."""
        self._closing: deque[tuple[str, Iterator[None]]] = deque()
        """The names of clients that are gone, and the steps that close what they had."""
        self._interrupted: list[QueuePair] = []
        """Queue pairs whose work was interrupted by an exception in that of another client."""
        self.write_counters: Callable[[], None] | None = None
        """Writes the counters of devices to the files that programs read, if there are any."""
        self._flush_at = self._move_by = now()
        self._taking: Context | None = None
        """The context whose work records are being read."""
        self._reports = False
        """Whether there may be asynchronous events of work or calls that were done."""
        self._yields = False
        """Whether the next step returns at once if there is no work: the loop yields then."""
        self._clients: dict[int, Client] = {}
        self._contexts: tuple[Context, ...] = ()
        self._listen(prepare)
        for fd in network.fds:
            self.loop.register(fd, _wake_up)

    def _listen(self, prepare: Callable[[Sequence[EmulatedDevice]], None] | None) -> None:
        """Make the socket, after the files that programs need."""
        check_socket_path(self.path)
        remove_dead(self.path)
        if prepare is not None:
            prepare(self.devices)
        self._listener = listen(self.path)
        self._spare = socket.socket(socket.AF_UNIX)
        """A descriptor for accepting a client when there is none left."""
        self._turns_away = False
        self.loop.register(self._listener.fileno(), self._accept)

    # The loop.

    def step(self) -> bool:
        """Take posted work, and move frames."""
        worked = False
        self._turns.number += 1
        if self._ending or self._closing:
            self._drop_ending()
            self._close_some()
        for context in self._contexts:
            reads, ring = _MAX_READS, context.ring
            while reads and ring.has_work and self._take_work(context):
                reads -= 1
                worked = True
        time = now()
        if (worked or self._yields) and time < self._move_by and self.network.is_idle:
            self._reports = self._reports or worked
            self._yields = worked
            return worked
        self._yields = False
        worked = self._move_all(time) or worked
        if worked or self._reports:
            self._report_events(now())
        return worked

    def _move_all(self, time: int) -> bool:
        """Move frames for a bounded time. Return whether there were any."""
        self._move_by, end, moved = time + _MOVE_PERIOD, time + _MAX_MOVING, False
        for _ in range(_MAX_MOVES):
            if time >= end or not self._move(time):
                break
            moved, time = True, now()  # frames take long: timers start when they are sent
        return moved

    def _move(self, time: int) -> bool:
        """Move frames and messages of the manager. Return whether there were any."""
        try:
            moved = self.network.move(time)
        except Exception as error:
            self._failed(error)
            moved = False
        return self.cm.step(time) or moved

    def _report_events(self, time: int) -> None:
        """Write asynchronous events to their pipes."""
        self._reports = False
        for context in self._contexts:
            if context.async_channel.events:
                self._for_client(context, context.report_events)
        if time >= self._flush_at:
            self._flush_events(time)

    def _flush_events(self, time: int) -> None:
        """Write events that are pending because a pipe was full."""
        self._flush_at = time + _FLUSH_PERIOD
        for context in self._contexts:
            self._for_client(context, context.flush_events)

    def _for_client(self, context: Context, work: Callable[[], None]) -> None:
        """Do work of one client."""
        try:
            work()
        except Exception as error:
            self._fail(self._client_of(context), error)

    def _take_work(self, context: Context) -> bool:
        self._taking = context
        try:
            return take_work(context)
        except Exception as error:
            self._drop_after(context, error)
            return False
        finally:
            self._taking = None

    def _fetch_receives(self, device: EmulatedDevice) -> bool:
        """Take the receives that wait in the rings of a device. Return whether there were any.

        Except those of the ring that is being read: its records are taken in order.
        """
        found = False
        for context in self._contexts:
            others = context.device is device and context is not self._taking
            if others and context.ring.has_work:
                try:
                    found = take_receives(context) or found
                except Exception as error:
                    self._fail(self._client_of(context), error)
        return found

    def _take_all_work(self, context: Context) -> None:
        """Take what is in the ring now: at most as much as fits into it."""
        for _ in range(WORK_RING_BYTES // MAX_BATCH):
            if not context.ring.has_work or not self._take_work(context):
                return

    def next_timer(self) -> int | None:
        """When frames, timers or messages of the manager are due (ns), or ``None``."""
        times = self.network.next_timer(), self.cm.next_timer()
        return min((time for time in times if time is not None), default=None)

    def may_sleep(self) -> bool:
        """Have libraries ring their doorbells. ``False`` if there is work already."""
        if self._reports or self._ending or self._closing:
            return False
        for context in self._contexts:
            context.ring.sleep()
        self._flush_events(now())
        self.network.flush()
        fence()
        return not any(context.ring.has_work for context in self._contexts)

    def awake(self) -> None:
        """Have libraries ring no doorbells."""
        for context in self._contexts:
            context.ring.wake()

    def run(self) -> None:
        """Serve until :meth:`stop`, whatever exceptions the work raises."""
        while not self.loop.stopped:
            try:
                self.loop.run(self)
            except Exception as error:
                self._failed(error)

    def stop(self) -> None:
        """Let :meth:`run` return."""
        self.loop.stop()

    # Exceptions.

    def _failed(self, error: Exception) -> None:
        """Note an exception of work that any client, or none, may have caused."""
        self._fail(responsible_client(error, list(self._clients.values()), _OWNED), error)

    def _queue_pair_failed(self, error: Exception, qp: QueuePair) -> None:
        """Note an exception of a queue pair's work, or of that of its peer on this service."""
        clients = list(self._clients.values())
        owner = next((one for one in clients if one.owns(qp)), None)
        found = responsible_client(error, clients, _OWNED) or owner
        self._fail(found, error)
        if found is not owner:
            self._interrupted.append(qp)

    def _fail(self, client: Client | None, error: Exception) -> None:
        """Print an exception, and end its client in the next step: the engine may be in a call."""
        if client is None:
            self._failures.of_service(error)
        elif client not in self._ending:
            self._ending[client] = None
            self._failures.of_client(client.name, error)

    def _drop_ending(self) -> None:
        """Drop the clients whose work raised an exception. Their peers' work goes on."""
        for client in tuple(self._ending):
            self._drop(client)
        for qp in self._interrupted:
            if qp.device.qps.get(qp.qp_num) is qp:
                qp.wake()
        self._interrupted.clear()

    def _client_of(self, context: Context) -> Client | None:
        return next((one for one in self._clients.values() if one.context is context), None)

    # Clients.

    def _accept(self, _: int) -> None:
        try:
            connection = ControlConnection(self._listener.accept()[0])
        except BlockingIOError:
            return  # the client has closed its connection
        except OSError as error:
            self._turn_away(error)
            return
        self._clients[connection.fd] = Client(connection)
        self.loop.register(connection.fd, partial(self._receive_request, connection.fd))
        self._receive_request(connection.fd, 0)  # most have sent a request by now

    def _turn_away(self, error: OSError) -> None:
        """Close the connection of a client for which there is no descriptor.

        If it waited, the listener would stay ready, and the loop would try again and again.
        """
        if not self._turns_away:
            warn(f"{error}: clients are turned away until others end")
        self._turns_away = True
        self._spare.close()
        with suppress(OSError):
            self._listener.accept()[0].close()
        with suppress(OSError):  # another thread has taken it: the next client frees it
            self._spare = socket.socket(socket.AF_UNIX)

    def _receive_request(self, fd: int, _: int) -> None:
        """Answer a request of a client, or drop a client that is gone."""
        client = self._clients[fd]
        if client.context is not None and client.context.copies.is_late:
            client.waits = True
            self.loop.unregister(fd)
            return
        try:
            request = client.connection.receive()
        except BlockingIOError:
            return  # no request yet, or an event of an earlier client with this descriptor
        except ClientGone:
            self._drop(client)
            return
        if request is not None and client not in self._ending:
            self._serve(client, request)

    def _serve(self, client: Client, request: Request) -> None:
        """Answer a request. Drop a client that is gone, or whose request raises an exception."""
        try:
            self._answer(client, request)
        except ClientGone:
            self._drop(client)
        except Exception as error:
            self._fail(client, error)
            self._drop(client)

    def _answer(self, client: Client, request: Request) -> None:
        try:
            reply = self._perform(client, request)
        except VerbsError as error:
            client.connection.refuse(error.errno, error.reason)
        else:
            client.connection.reply(reply)
        finally:
            request.close_fds()

    def _perform(self, client: Client, request: Request) -> Reply:
        name = request.call.name
        if name == "hello":
            return self._hello(client, *request.arguments)
        if name == "write_counters":
            return self._write_counters(client, *request.arguments)
        if not client.greeted:
            raise VerbsError("the first call is hello", EPROTO)
        if client.context is not None and name != "read_counters":
            self._take_all_work(client.context)  # what was posted before the call
            if client.context is None or client in self._ending:
                raise ClientGone
            self._reports = True  # a change of state has events
            return Calls(client.context).perform(request.call.number, request.arguments)
        if name.startswith(PREFIX):
            client.session = client.session or CmSession()
            calls = ConnectionCalls(self.cm, client.session)
            return calls.perform(request.call.number, request.arguments)
        return self._perform_outside(client, request)

    def _perform_outside(self, client: Client, request: Request) -> Reply:
        """Do a call that needs no context."""
        name = request.call.name
        if name == "read_counters":
            return self._read_counters(*request.arguments)
        if name == "get_device":
            return self._get_device(*request.arguments)
        if name == "open_device":
            return self._open_device(client, self._device(*request.arguments))
        if name == "import_device":
            return self._import_device(client, *request.fds)
        raise VerbsError(f"{name} needs an open device", EINVAL)

    def _hello(self, client: Client, version: int) -> Reply:
        if version != protocol.version():
            raise VerbsError("the library is of another version of rdmawire", EPROTO)
        client.greeted = True
        return Reply((len(self.devices),))

    def _device(self, index: int) -> EmulatedDevice:
        if index >= len(self.devices):
            raise VerbsError(f"device {index}: there are {len(self.devices)}", ENODEV)
        return self.devices[index]

    def _get_device(self, index: int) -> Reply:
        device = self._device(index)
        name = device.name.encode().ljust(8 * _NAME_WORDS, b"\0")
        return Reply((device.guid, _NODE_CA, *array("Q", name)))

    def _read_counters(self, index: int) -> Reply:
        device = self._device(index)
        contexts = [context for context in self._contexts if context.device is device]
        return Reply(counter_words(device, contexts))

    def _write_counters(self, client: Client, version: int) -> Reply:
        self._hello(client, version)
        if self.write_counters is not None:
            try:
                self.write_counters()
            except OSError as error:
                raise VerbsError(f"counters cannot be written: {error}", EIO) from error
        return NO_VALUES

    def _import_device(self, client: Client, cmd_fd: int) -> Reply:
        """Open a device that is open. ``VerbsError`` EBADF for a descriptor of something else."""
        try:
            fcntl(cmd_fd, F_GET_SEALS)  # of memory alone: the status of other files may be late
        except OSError:
            raise VerbsError("no cmd_fd of a device: no sealed memory", EBADF) from None
        status = os.fstat(cmd_fd)
        for context in self._contexts:
            if context.file.identity == (status.st_dev, status.st_ino):
                return self._open_device(client, context.device, context.file)
        raise VerbsError("no cmd_fd of a device that is open", EBADF)

    def _open_device(
        self, client: Client, device: EmulatedDevice, file: DeviceFile | None = None
    ) -> Reply:
        try:
            context = self._make_context(client, device, file)
            doorbell = self._register_doorbell(context)
        except OSError as error:
            raise VerbsError(f"no descriptors or memory left: {error}", ENOMEM) from error
        client.context = context
        self._contexts += (context,)
        copies = int(context.process is None)
        fds = (
            context.ring.take_fd(),
            doorbell,
            context.pipe.take_read_end(),
            *context.copies.take_fds(),
        )
        handle = self.devices.index(device) + 1
        return Reply((handle, copies, *device_words(device)), fds)

    def _make_context(
        self, client: Client, device: EmulatedDevice, file: DeviceFile | None
    ) -> Context:
        """Make the context of a client. ``OSError`` without descriptors or memory."""
        with ExitStack() as made:
            memory = _memory_of(client.connection)
            if memory is not None:
                made.callback(memory.close)
            context = Context(device, client.connection.pid, memory, file, turns=self._turns)
            made.pop_all()
        context.failed = self._failed
        context.copies.on_late = partial(self._await_copy, context)
        context.copies.on_answer = partial(self._resume, client, context)
        return context

    def _register_doorbell(self, context: Context) -> int:
        """Wake up when a library rings. Return its descriptor; after ``OSError`` close the context.

        It is edge-triggered, and never read: the client could let a read block.
        """
        with ExitStack() as made:
            made.callback(context.close)
            doorbell = os.dup(context.ring.doorbell)
            made.callback(os.close, doorbell)
            self.loop.register(context.ring.doorbell, _wake_up, EPOLLIN | EPOLLET)
            made.pop_all()
        return doorbell

    def _await_copy(self, context: Context) -> None:
        """Wake up when the library of a context answers a late request for a copy."""
        self.loop.register(context.copies.fd, lambda _: context.flush_events())

    def _resume(self, client: Client, context: Context) -> None:
        """Answer the requests of a client that waited for a copy of its library."""
        self.loop.unregister(context.copies.fd)
        if client.waits:
            client.waits = False
            fd = client.connection.fd
            self.loop.register(fd, partial(self._receive_request, fd))

    def _drop_after(self, context: Context, error: Exception) -> None:
        """Drop the client of a context after ``error``: invalid records, or any other exception."""
        client = self._client_of(context)
        if client is None:
            return
        if isinstance(error, RingError):
            warn(f"{client.name}: closed, {error}")
        else:
            self._fail(client, error)
        self._drop(client)

    def _drop(self, client: Client) -> None:
        """Forget a client, and destroy its objects: many of them in several steps."""
        self.loop.unregister(client.connection.fd)
        self._clients.pop(client.connection.fd, None)
        client.connection.close()
        self._turns_away = False
        self._ending.pop(client, None)
        name = client.name
        context, client.context = client.context, None
        if context is not None:
            self._contexts = tuple(one for one in self._contexts if one is not context)
            self.loop.unregister(context.ring.doorbell)
            self.loop.unregister(context.copies.fd)
            self._closing.append((name, context.closing()))
        session, client.session = client.session, None
        if session is not None:  # first: a program may be started again on the same port
            self._closing.appendleft((name, self.cm.closing(session)))
        self._close_some()

    def _close_some(self) -> None:
        """Destroy objects of clients that are gone, the oldest client's first, for a short time."""
        end = now() + _MAX_CLOSING
        while self._closing and now() < end:
            name, steps = self._closing[0]
            try:
                next(steps)
            except StopIteration:
                self._closing.popleft()
            except Exception as error:
                self._closing.popleft()
                self._failures.of_client(name, error)

    def close(self) -> None:
        """Drop all clients, and remove the socket."""
        for client in tuple(self._clients.values()):
            self._drop(client)
        while self._closing:
            self._close_some()
        self.loop.unregister(self._listener.fileno())
        self._listener.close()
        self._spare.close()
        self.path.unlink(missing_ok=True)
        for fd in self.network.fds:
            self.loop.unregister(fd)
        self.network.close()
        self.loop.close()


_OWNED: Final = (*CONTEXT_KINDS, *SESSION_KINDS)
"""Classes of objects by which the client responsible for an exception is found."""


def _wake_up(_: int) -> None:
    """Do nothing: the next step moves what arrived."""


def _memory_of(connection: ControlConnection) -> ProcessMemory | None:
    """The memory of a client's process, or ``None`` where Linux refuses it, or it has ended."""
    try:
        memory = ProcessMemory(connection.pid, connection.uid)
    except (PermissionError, FileNotFoundError, ProcessLookupError):
        return None
    if connection.is_of_living_process():
        return memory
    memory.close()
    return None
