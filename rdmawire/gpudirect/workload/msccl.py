"""Algorithms of MSCCL: XML files that say what each GPU does, thread block by thread block.

::

    <algo name="pair" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" coll="allreduce">
      <gpu id="0" i_chunks="2" o_chunks="2" s_chunks="0">
        <tb id="0" send="1" recv="1" chan="0">
          <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1"
                depid="-1" deps="-1" hasdep="0"/>

Facts: the parser of msccl-executor-nccl, and the writer of msccl-tools. The XML is read by Expat
without a document type, so there are no entities.
"""

from collections.abc import Mapping
from typing import BinaryIO, Final
from xml.parsers.expat import ExpatError, ParserCreate

from rdmawire.errors import WorkloadError
from rdmawire.gpudirect.nccl.collective import Collective
from rdmawire.gpudirect.workload.algorithm import (
    STEP_TYPES,
    Block,
    MscclAlgorithm,
    MscclStep,
    Program,
    Ref,
)
from rdmawire.gpudirect.workload.graph import (
    CHANNELS,
    MAX_OPERATIONS,
    MAX_RANKS,
    Call,
    Kind,
    Operation,
    Workload,
    add_operation,
)
from rdmawire.terminal import quote

MAX_BYTES: Final = 1 << 26
CHUNK: Final = 1 << 16
"""Bytes of a chunk, if no size is given."""
_MAX_NUMBER: Final = 1 << 20
_PARTS: Final = {"algo": "", "gpu": "algo", "tb": "gpu", "step": "tb"}
"""Elements, and those that they are in."""
_COLLECTIVES: Final = {
    "allreduce": Collective.ALL_REDUCE,
    "allgather": Collective.ALL_GATHER,
    "reducescatter": Collective.REDUCE_SCATTER,
    "reduce_scatter": Collective.REDUCE_SCATTER,
    "alltoall": Collective.ALL_TO_ALL,
}
_BUFFERS: Final = ("i", "o", "s")


def parse_msccl(file: BinaryIO, source: str = "algorithm", size: int = 0) -> Workload:
    """Read an algorithm from a binary ``file``: a workload in which each rank does it once.

    ``source`` is its name in messages, ``size`` the bytes of the operation, 0 for 64 KiB in each
    chunk. Raises :class:`WorkloadError` for the first error, with its line.
    """
    reader = _Reader(source)
    algorithm = reader.read(file)
    size = size or algorithm.chunks * CHUNK
    if size < algorithm.chunks:
        raise WorkloadError(f"{source}: {size} bytes are too few for {algorithm.chunks} chunks")
    call = Call(algorithm, tuple(range(len(algorithm.programs))), exact=True)
    ranks: list[list[Operation]] = [[] for _ in algorithm.programs]
    for operations in ranks:
        one = Operation(Kind.COLLECTIVE, size, label=algorithm.collective.value, call=call)
        add_operation(operations, one, 0, source)
    return Workload("MSCCL", [source], ranks)


class _Element:
    """The attributes of an element, and where it is."""

    def __init__(self, name: str, values: Mapping[str, str], where: str) -> None:
        self.name = name
        self.where = where
        self._values = values

    def error(self, text: str) -> WorkloadError:
        return WorkloadError(f"{self.where}: <{self.name}> {text}")

    def text(self, name: str, default: str | None = None) -> str:
        """Return an attribute, or the default; raise an error if there is neither."""
        found = self._values.get(name, default)
        if found is None:
            raise self.error(f"has no {name}")
        return found

    def number(
        self, name: str, low: int = 0, high: int = _MAX_NUMBER, default: int | None = None
    ) -> int:
        """Return an attribute as a number within bounds."""
        text = self.text(name, None if default is None else str(default))
        try:
            number = int(text) if len(text) <= 20 and text.isascii() else None
        except ValueError:
            number = None
        if number is None or not low <= number <= high:
            raise self.error(f"{name}={quote(text)}: a number from {low} to {high} is expected")
        return number


class _Reader:
    """Builds an algorithm from the elements of a file."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._parser = ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.StartDoctypeDeclHandler = self._refuse
        self._open: list[str] = []
        self._algo: _Element | None = None
        self._gpus: dict[int, tuple[Mapping[str, int], dict[int, Block]]] = {}
        self._gpu = self._block = 0
        self._steps: list[MscclStep] = []
        self._count = 0

    @property
    def _where(self) -> str:
        return f"{self._source}, line {self._parser.CurrentLineNumber}"

    def read(self, file: BinaryIO) -> MscclAlgorithm:
        """Return the algorithm of a file."""
        data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise WorkloadError(f"{self._source}: more than {MAX_BYTES} bytes")
        try:
            self._parser.Parse(data, True)
        except ExpatError as error:
            reason = str(error).partition(":")[0]
            raise WorkloadError(f"{self._source}, line {error.lineno}: {reason}") from None
        except (LookupError, ValueError):  # of codecs
            raise WorkloadError(f"{self._source}: the encoding is not supported") from None
        assert self._algo is not None
        return self._algorithm(self._algo)

    def _refuse(self, *_: object) -> None:
        raise WorkloadError(f"{self._where}: a document type; an algorithm has none")

    def _start(self, name: str, values: dict[str, str]) -> None:
        parent = self._open[-1] if self._open else ""
        if _PARTS.get(name) != parent:
            inside = f"inside <{parent}>" if parent else "at the top"
            expected = (
                next(one for one, above in _PARTS.items() if above == parent)
                if (parent != "step")
                else "nothing"
            )
            raise WorkloadError(f"{self._where}: <{name[:40]}> {inside}; expected {expected}")
        self._open.append(name)
        element = _Element(name, values, self._where)
        {"algo": self._on_algo, "gpu": self._on_gpu, "tb": self._on_block, "step": self._on_step}[
            name
        ](element)

    def _end(self, name: str) -> None:
        self._open.pop()
        if name == "tb":
            blocks = self._gpus[self._gpu][1]
            blocks[self._block] = blocks[self._block]._replace(steps=tuple(self._steps))

    def _on_algo(self, algo: _Element) -> None:
        algo.number("ngpus", 1, MAX_RANKS)
        algo.number("nchunksperloop", 1)
        if algo.text("coll") not in _COLLECTIVES:
            known = ", ".join(_COLLECTIVES)
            raise algo.error(f"coll={quote(algo.text('coll'))}; known are {known}")
        self._algo = algo

    def _on_gpu(self, gpu: _Element) -> None:
        assert self._algo is not None
        most = self._algo.number("ngpus", 1, MAX_RANKS) - 1
        self._gpu = gpu.number("id", 0, most)
        if self._gpu in self._gpus:
            raise gpu.error(f"id={self._gpu} is there already")
        chunks = {name: gpu.number(f"{name}_chunks") for name in _BUFFERS}
        self._gpus[self._gpu] = (self._lengths(chunks), {})

    def _lengths(self, chunks: dict[str, int]) -> dict[str, int]:
        """Return the lengths of buffers: at least those of the operation."""
        assert self._algo is not None
        data = self._empty(self._algo)
        return {
            "i": max(chunks["i"], data.inputs),
            "o": max(chunks["o"], data.outputs),
            "s": chunks["s"],
        }

    def _on_block(self, block: _Element) -> None:
        assert self._algo is not None
        most = self._algo.number("ngpus", 1, MAX_RANKS) - 1
        self._block = block.number("id")
        blocks = self._gpus[self._gpu][1]
        if self._block in blocks:
            raise block.error(f"id={self._block} is there already")
        send, receive = block.number("send", -1, most), block.number("recv", -1, most)
        if self._gpu in {send, receive}:
            raise block.error(f"is of GPU {self._gpu}, and has it as its peer")
        channel = block.number("chan", 0, CHANNELS - 1)
        for other in blocks.values():
            if other.channel == channel and (
                (send >= 0 and other.send == send) or (receive >= 0 and other.receive == receive)
            ):
                raise block.error(f"has a peer on channel {channel} that another block has")
        blocks[self._block] = Block(send, receive, channel, ())
        self._steps = []

    def _on_step(self, step: _Element) -> None:
        self._count += 1
        if self._count > MAX_OPERATIONS:
            raise step.error(f"is beyond the first {MAX_OPERATIONS}")
        if step.number("s") != len(self._steps):
            raise step.error(f"s={step.number('s')}: step {len(self._steps)} is expected")
        kind = step.text("type")
        if kind not in STEP_TYPES:
            raise step.error(f"type={quote(kind)}; known are {', '.join(STEP_TYPES)}")
        self._check_peers(step, kind)
        count = step.number("cnt", 0, default=1)
        wait = step.number("depid", -1, default=-1), step.number("deps", -1, default=-1)
        one = MscclStep(
            kind,
            self._ref(step, "src", count, needed=_reads(kind)),
            self._ref(step, "dst", count, needed=STEP_TYPES[kind].stores),
            count,
            None if wait[0] < 0 else wait,
            self._parser.CurrentLineNumber,
        )
        self._steps.append(one)

    def _check_peers(self, step: _Element, kind: str) -> None:
        block, does = self._gpus[self._gpu][1][self._block], STEP_TYPES[kind]
        for wanted, peer, word in (
            (does.sends, block.send, "send"),
            (
                does.receives,
                block.receive,
                "recv",
            ),
        ):
            if wanted and peer < 0:
                raise step.error(f"type={kind} in a block without a peer: {word} is -1")

    def _ref(self, step: _Element, end: str, count: int, *, needed: bool) -> Ref:
        """Return the source or the target of a step, which are within the buffer if needed."""
        buffer = step.text(f"{end}buf", "i")
        offset = step.number(f"{end}off", -1, default=-1)
        if not needed:
            return Ref("i", 0)
        if buffer not in _BUFFERS:
            raise step.error(f"{end}buf={quote(buffer)}; known are {', '.join(_BUFFERS)}")
        length = self._gpus[self._gpu][0][buffer]
        if offset < 0 or offset + count > length:
            last = offset + count - 1
            raise step.error(
                f"{end}off={offset}: chunks {offset} to {last} of buffer {buffer}, which has"
                f" {length}"
            )
        return Ref(buffer, offset)

    def _empty(self, algo: _Element) -> MscclAlgorithm:
        """Return the algorithm without its steps."""
        gpus, chunks = algo.number("ngpus", 1, MAX_RANKS), algo.number("nchunksperloop", 1)
        collective = _COLLECTIVES[algo.text("coll")]
        if collective is not Collective.ALL_REDUCE and chunks % gpus:
            raise algo.error(f"nchunksperloop={chunks} is no multiple of {gpus} GPUs")
        in_place = algo.number("inplace", 0, 1, default=0)
        both = algo.number("outofplace", 0, 1, default=1 - in_place)
        programs = (Program(dict.fromkeys(_BUFFERS, 0), {}),) * gpus
        return MscclAlgorithm(
            algo.text("name", self._source), collective, chunks, programs,
            in_place=bool(in_place and not both),
        )  # fmt: skip

    def _algorithm(self, algo: _Element) -> MscclAlgorithm:
        """Return the algorithm, when all of it has been read."""
        empty = self._empty(algo)
        missing = [gpu for gpu in range(len(empty.programs)) if gpu not in self._gpus]
        if missing:
            raise algo.error(f"has no <gpu id={missing[0]}> of {len(empty.programs)}")
        for gpu, (_, blocks) in self._gpus.items():
            self._check_waits(gpu, blocks)
        programs = tuple(Program(*self._gpus[gpu]) for gpu in range(len(empty.programs)))
        return empty._replace(programs=programs)

    def _check_waits(self, gpu: int, blocks: Mapping[int, Block]) -> None:
        for number, block in blocks.items():
            for step in block.steps:
                if step.wait is None:
                    continue
                other, index = step.wait
                if other not in blocks or not 0 <= index < len(blocks[other].steps):
                    raise WorkloadError(
                        f"{self._source}, line {step.line}: tb {number} of GPU {gpu} waits for step"
                        f" {index} of tb {other}, which is not there"
                    )


def _reads(kind: str) -> bool:
    """Whether a step reads its source."""
    does = STEP_TYPES[kind]
    return does.adds or (not does.receives and (does.sends or does.stores))
