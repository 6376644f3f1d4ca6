"""The broker's CPU time for a produce and for a fetch, beside an earlier commit.

    python -m benchmarks.hot_path [--before CHECKOUT] [--cells PATTERN]

The client sends frames that were encoded beforehand, `PIPELINE` at a time, and reads only the
lengths of the replies, so it is never the bound. CPU time is that of the broker's process: on a
shared machine a rate tells little, the CPU time of a request tells much. Both commits run at the
same time and take turns of a tenth of a second; the medians of the turns and of their ratios are
reported.
"""

import argparse
import socket
import statistics
import struct
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path

from benchmarks.kafka.peers import HOST, Peer, Server, millstream, millstream_before
from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.kafka_wire.apis.admin import CreateTopicsRequest
from millstream.kafka_wire.apis.data import FetchRequest, ProduceRequest
from millstream.kafka_wire.headers import RequestHeader, encode_request
from millstream.kafka_wire.schema import Message

PIPELINE = 5
PRODUCE, FETCH, CREATE_TOPICS = 0, 1, 19
VERSIONS = {PRODUCE: 10, FETCH: 12, CREATE_TOPICS: 5}
FETCH_BYTES = 2**20
FILLED_BYTES = 4 * 2**20  # In each partition that is fetched from.
SLICES = 20  # Turns of each commit in one cell.
LENGTH = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Cell:
    name: str
    requests: int
    partitions: int
    record_bytes: int
    records: int
    acks: int = 1
    is_fetch: bool = False
    topic: str = "bench"


CELLS = [
    Cell(f"produce 100x100B acks={acks} {partitions}p", 6000, partitions, 100, 100, acks)
    for acks in (0, 1, -1)
    for partitions in (1, 6)
]
CELLS += [
    Cell("produce 1x100B acks=1 1p", 6000, 1, 100, 1, 1),
    Cell("produce 1x100B acks=-1 1p", 6000, 1, 100, 1, -1),
    Cell("produce 8000x100B acks=-1 1p", 400, 1, 100, 8000, -1),
    Cell("produce 1000x1KB acks=-1 1p", 400, 1, 1000, 1000, -1),
    Cell("produce 1000x1KB acks=1 6p", 400, 6, 1000, 1000, 1),
    Cell("fetch 1MB of 100x100B 1p", 1500, 1, 100, 100, is_fetch=True),
    Cell("fetch 1MB of 100x100B 6p", 1500, 6, 100, 100, is_fetch=True),
    Cell("fetch 1MB of 1000x1KB 1p", 1000, 1, 1000, 1000, is_fetch=True),
]


class Client:
    """One connection that answers nothing but how much came back."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(4 * 2**20)

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def reply(self) -> memoryview:
        self._fill(0, LENGTH.size)
        (length,) = LENGTH.unpack_from(self._buffer)
        self._fill(LENGTH.size, length)
        return memoryview(self._buffer)[LENGTH.size : LENGTH.size + length]

    def _fill(self, at: int, size: int) -> None:
        view = memoryview(self._buffer)[at : at + size]
        while view:
            view = view[self._socket.recv_into(view) :]

    def close(self) -> None:
        self._socket.close()


def frame_of(key: int, request: Message) -> bytes:
    header = RequestHeader(key, VERSIONS[key], 7, "bench")
    return b"".join(bytes(part) for part in encode_request(header, request))  # type: ignore[arg-type]


def produce_frame(cell: Cell, partition: int) -> bytes:
    now_ms = int(time.time() * 1000)
    value = bytes(range(256)) * 4
    batch = encode_batch(
        [Record(at, now_ms, None, value[: cell.record_bytes]) for at in range(cell.records)]
    )
    part = ProduceRequest.Topic.Partition(index=partition, records=batch)
    topic = ProduceRequest.Topic(name=cell.topic, partition_data=[part])
    return frame_of(PRODUCE, ProduceRequest(acks=cell.acks, timeout_ms=30_000, topic_data=[topic]))


def fetch_frame(partition: int, offset: int, topic_name: str = "bench") -> bytes:
    part = FetchRequest.Topic.Partition(
        partition=partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
    )
    topic = FetchRequest.Topic(topic=topic_name, partitions=[part])
    return frame_of(
        FETCH,
        FetchRequest(
            max_wait_ms=500, min_bytes=1, max_bytes=50 * 2**20, session_epoch=-1, topics=[topic]
        ),
    )


def create(client: Client, partitions: int, name: str = "bench") -> None:
    topic = CreateTopicsRequest.Topic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    client.send(frame_of(CREATE_TOPICS, CreateTopicsRequest(topics=[topic], timeout_ms=30_000)))
    client.reply()


def pump(client: Client, frames: Iterator[bytes], *, is_answered: bool) -> None:
    if not is_answered:
        for frame in frames:
            client.send(frame)
        return
    waiting = 0
    for frame in frames:
        client.send(frame)
        waiting += 1
        if waiting == PIPELINE:
            client.reply()
            waiting -= 1
    for _ in range(waiting):
        client.reply()


class Subject:
    """A broker under test, filled and warm."""

    def __init__(self, node: Server, cell: Cell) -> None:
        self._node = node
        self._client = Client(node.port)
        self._is_answered = cell.is_fetch or cell.acks != 0
        self._sync_frame = fetch_frame(0, 0)
        create(self._client, cell.partitions)
        self._frames = frames_of(cell)
        self._at = 0
        if cell.is_fetch:
            self._fill(cell)
        self.run(cell.requests // SLICES)

    def run(self, count: int) -> float:
        """Send so many requests; return the broker's CPU time for one of them, in microseconds."""
        before = self._node.cpu_seconds()
        at, self._at = self._at, self._at + count
        frames = self._frames
        pump(
            self._client,
            (frames[index % len(frames)] for index in range(at, at + count)),
            is_answered=self._is_answered,
        )
        if not self._is_answered:  # All are taken when a request behind them is answered.
            pump(self._client, iter([self._sync_frame]), is_answered=True)
        return (self._node.cpu_seconds() - before) / count * 1e6

    def _fill(self, cell: Cell) -> None:
        frames = frames_of(replace(cell, acks=-1, is_fetch=False))
        count = FILLED_BYTES // len(frames[0]) * cell.partitions
        pump(
            self._client,
            (frames[index % len(frames)] for index in range(count)),
            is_answered=True,
        )


def frames_of(cell: Cell) -> list[bytes]:
    partitions = range(cell.partitions)
    if not cell.is_fetch:
        return [produce_frame(cell, partition) for partition in partitions]
    batches = FILLED_BYTES // 2 // (cell.record_bytes * cell.records)
    return [
        fetch_frame(partition, batch * cell.records, cell.topic)
        for batch in range(batches)
        for partition in partitions
    ]


def measure(peers: Sequence[Peer], cell: Cell) -> list[list[float]]:
    """For each peer, the CPU time of a request in each slice; the peers take turns."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        subjects = [
            Subject(stack.enter_context(Server(peer, root / str(at), "write")), cell)
            for at, peer in enumerate(peers)
        ]
        count = cell.requests // SLICES
        slices: list[list[float]] = [[] for _ in peers]
        for turn in range(SLICES):
            order = range(len(peers)) if turn % 2 else reversed(range(len(peers)))
            for at in order:
                slices[at].append(subjects[at].run(count))
        return slices


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", type=Path)
    parser.add_argument("--cells", default="*")
    arguments = parser.parse_args()
    peers = [millstream()]
    if arguments.before is not None:
        peers.insert(0, millstream_before(arguments.before))
    print(f"{'us of CPU for a request':34} {' '.join(f'{peer.version:>10}' for peer in peers)}")
    for cell in CELLS:
        if not fnmatch(cell.name, arguments.cells):
            continue
        slices = measure(peers, cell)
        columns = " ".join(f"{statistics.median(column):10.1f}" for column in slices)
        ratio = statistics.median(before / after for before, after in zip(*slices[:2], strict=True))
        print(
            f"{cell.name:34} {columns}" + (f" {ratio:6.2f}" if len(peers) > 1 else ""), flush=True
        )


if __name__ == "__main__":
    main()
