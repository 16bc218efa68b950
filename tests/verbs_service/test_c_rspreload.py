"""Programs for ordinary sockets that librspreload.so runs on rsockets."""

import socket
import subprocess
import sys
from pathlib import Path

from rdmawire.verbs_service.capture import Capture
from rdmawire.verbs_service.network import DirectNetwork
from tests.verbs_service.c_programs import environment, library, program
from tests.verbs_service.running import running
from tests.verbs_service.test_c_rdmacm import messages_in
from tests.waiting import HANG


def run(service: Path, *command: str | Path, preload: str = "librspreload.so") -> str:
    """Run a program, and return what it prints."""
    env = {**environment(library(), service), "LD_PRELOAD": preload}
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=HANG, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_sockets_become_rsockets_and_have_the_same_results(tmp_path: Path) -> None:
    """The machine has no address 10.0.0.1: its own sockets would not be bound to it."""
    path = program("rsockets")
    with running(tmp_path) as service:
        expected = run(service.path, path, "--print", "127.0.0.1", preload="")
        assert run(service.path, path, "--print", "10.0.0.1") == expected


PYTHON = r"""
import asyncio, fcntl, http.server, os, select, socket, subprocess, sys, tempfile, termios
import threading
from urllib.request import urlopen

class Folder(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_): pass

data = bytes(range(251)) * 4000
folder = tempfile.mkdtemp()
with open(folder + "/data", "wb") as file:
    file.write(data)
serve = lambda *a: Folder(*a, directory=folder)
with http.server.ThreadingHTTPServer(("10.0.0.1", 0), serve) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = "http://10.0.0.1:%d/data" % server.server_port
    assert urlopen(url).read() == data
    server.shutdown()

async def echo(reader, writer):
    writer.write((await reader.read())[::-1])
    await writer.drain()
    writer.close()

async def many():
    server = await asyncio.start_server(echo, "10.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async def one(number):
        reader, writer = await asyncio.open_connection("10.0.0.1", port)
        writer.write(bytes([number]) * 100000 + b"x")
        writer.write_eof()
        assert await reader.read() == b"x" + bytes([number]) * 100000
        writer.close()
    await asyncio.gather(*map(one, range(10)))
    server.close()
asyncio.run(many())

listener = socket.create_server(("10.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
copy = client.dup()
client.close()
null = os.open("/dev/null", os.O_RDWR)
os.dup2(copy.fileno(), null)
assert os.write(null, b"1") == 1 and server.recv(9) == b"1"
with open(folder + "/data", "rb") as file:
    thread = threading.Thread(target=lambda: copy.sendfile(file, 1000))
    thread.start()
    assert server.recv(len(data) - 1000, socket.MSG_WAITALL) == data[1000:]
    thread.join()
server.setblocking(False)
assert select.select([server], [server], [], 0) == ([], [server], [])
copy.sendall(b"four")
assert select.select([server], [], [])[0] == [server]
waiting = fcntl.ioctl(server, termios.FIONREAD, bytes(4))
assert int.from_bytes(waiting, sys.byteorder) == 4
assert server.sendmsg([b"a", b"bc"]) == 3 and copy.recv_into(bytearray(9)) == 3

# What a child of vfork() does to its descriptors changes nothing here.
subprocess.run(["true"], stdin=server, stdout=server, check=True)
print("to standard output", flush=True)
assert select.select([copy], [], [], 0) == ([], [], [])
server.sendall(b"a")
assert copy.recv(9) == b"a"

# The number of an rsocket in a range that is closed is that of a file then.
number = server.detach()
os.closerange(number, number + 1)
assert copy.recv(9) == b""
file = os.open(folder + "/data", os.O_RDONLY)
assert file == number and os.read(file, 9) == data[:9]

# An address of the machine that is no device's: an ordinary socket, also for those who connect.
with socket.create_server(("127.0.0.1", 0)) as own, socket.socket() as other:
    assert own.getsockname()[0] == "10.0.0.1"  # as rsockets have it
    ordinary = int(sys.argv[1])
    with socket.create_connection(("127.0.0.1", ordinary)) as connected:
        assert connected.getpeername() == ("127.0.0.1", ordinary)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
    datagrams.bind(("127.9.9.9", 0))
    datagrams.sendto(b"x", datagrams.getsockname())
    assert datagrams.recv(9) == b"x"
try:
    socket.create_connection(("10.0.0.1", 1))
except ConnectionRefusedError:
    pass
else:
    raise AssertionError("nobody listens there")
"""


def test_python_programs(tmp_path: Path) -> None:
    file = tmp_path / "live.pcap"
    with (
        socket.create_server(("127.0.0.1", 0)) as ordinary,
        running(tmp_path, DirectNetwork(Capture(file))) as service,
    ):
        printed = run(service.path, sys.executable, "-c", PYTHON, str(ordinary.getsockname()[1]))
    assert printed == "to standard output\n"
    names = [attribute.name for attribute, _ in messages_in(file)]
    assert names.count("REQ") >= 12
