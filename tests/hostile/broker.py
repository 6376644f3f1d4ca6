"""A real `millstream serve` process, seen from outside: its socket, its memory, its log lines."""

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.kafka_wire.apis.data import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProduceRequest,
    ProduceResponse,
)
from millstream.kafka_wire.apis.discovery import MetadataRequest, MetadataResponse
from millstream.kafka_wire.apis.table import APIS
from millstream.kafka_wire.headers import RequestHeader, decode_response, encode_request
from millstream.kafka_wire.schema import Message
from tests.support.sockets import receive_exactly

MILLSTREAM = Path(sys.executable).parent / "millstream"
PORTS = ["--port", "0", "--flux-port", "0", "--classic-port", "0", "--http-port", "0"]
SECONDS_MAX = 10
TOPIC = "orders"

PRODUCE, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 2, 3, 18


class Broker:
    def __init__(self, process: subprocess.Popen[str], log_path: Path, line: str) -> None:
        self.process = process
        self.address = _address(line, "kafka")
        self.flux_address = _address(line, "flux")
        self.classic_address = _address(line, "classic")
        self._log_path = log_path

    @property
    def log(self) -> str:
        return self._log_path.read_text()

    def resident_bytes(self, field_name: str = "VmRSS") -> int:
        """Memory now; the most it ever was is `VmHWM`."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{field_name}:"):
                return int(line.split()[1]) * 1024
        raise AssertionError(f"no {field_name}")

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def assert_unharmed(self) -> None:
        """It runs, and met nothing that it did not foresee."""
        assert self.process.poll() is None
        assert "unexpected error" not in self.log, self.log[-5000:]
        assert "Traceback" not in self.log, self.log[-5000:]
        with Client(self) as client:
            assert client.produce(batch(b"still here")).error_code == 0


def _address(ready_line: str, protocol: str) -> tuple[str, int]:
    host, _, port = ready_line.split(f" {protocol}=")[1].split()[0].rpartition(":")
    return host, int(port)


@contextmanager
def serving(
    log_path: Path,
    *,
    data_dir: Path | None = None,
    descriptors_max: int | str | None = None,
    **environment: str,
) -> Iterator[Broker]:
    """A broker in memory, or in `data_dir`, that may open so many files and no more."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("MILLSTREAM_")}
    storage = ["--data-dir", str(data_dir)] if data_dir else ["--storage", "memory"]
    limited = [] if descriptors_max is None else ["prlimit", f"--nofile={descriptors_max}"]
    with log_path.open("w") as log:
        process = subprocess.Popen(
            [*limited, MILLSTREAM, "serve", *PORTS, *storage],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=inherited | environment,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("millstream ready"), log_path.read_text()
        broker = Broker(process, log_path, line)
        with Client(broker) as client:
            client.create_topic()
        yield broker
    finally:
        process.kill()
        process.communicate()


class Client:
    """A Kafka client that does as it is told, right or wrong."""

    def __init__(self, broker: Broker) -> None:
        self.socket = socket.create_connection(broker.address, timeout=SECONDS_MAX)
        self._number = 0

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, raw: bytes) -> None:
        self.socket.sendall(raw)

    def try_send(self, raw: bytes) -> None:
        """Send as much as the broker wants to hear."""
        try:
            self.socket.sendall(raw)
        except ConnectionError:
            return

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def is_closed(self) -> bool:
        """Wait for the broker to say something or to close; say whether it closed."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def last_words(self) -> bytes:
        """All that the broker says before it closes."""
        words = b""
        try:
            while piece := self.socket.recv(4096):
                words += piece
        except ConnectionError:
            pass
        return words

    def frame(self) -> bytes:
        return self._exactly(int.from_bytes(self._exactly(4)))

    def ask(self, key: int, version: int, request: Message) -> Message:
        self._number += 1
        self.send(spell(key, version, request, number=self._number))
        number, response = decode_response(APIS[key], version, self.frame())
        assert number == self._number
        return response

    def create_topic(self, name: str = TOPIC) -> None:
        want = MetadataRequest(topics=[MetadataRequest.Topic(name=name)])
        response = self.ask(METADATA, 4, want)
        assert isinstance(response, MetadataResponse)
        assert response.topics[0].error_code == 0

    def produce(
        self, data: bytes | None, *, acks: int = -1, topic: str = TOPIC
    ) -> ProduceResponse.Topic.Partition:
        response = self.ask(PRODUCE, 9, produce_request(data, acks=acks, topic=topic))
        assert isinstance(response, ProduceResponse)
        return response.responses[0].partition_responses[0]

    def end_offset(self) -> int:
        part = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=-1)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsRequest.Topic(name=TOPIC, partitions=[part])]
        )
        response = self.ask(LIST_OFFSETS, 4, request)
        assert isinstance(response, ListOffsetsResponse)
        return response.topics[0].partitions[0].offset

    def _exactly(self, size: int) -> bytes:
        return receive_exactly(self.socket, size)


def spell(key: int, version: int, request: Message, *, number: int = 7) -> bytes:
    header = RequestHeader(key, version, number, "hostile")
    chunks = encode_request(header, request)
    return b"".join(bytes(chunk) for chunk in chunks if not hasattr(chunk, "read"))


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def produce_request(data: bytes | None, *, acks: int = -1, topic: str = TOPIC) -> ProduceRequest:
    part = ProduceRequest.Topic.Partition(index=0, records=data)
    return ProduceRequest(
        acks=acks,
        timeout_ms=5_000,
        topic_data=[ProduceRequest.Topic(name=topic, partition_data=[part])],
    )


def batch(*values: bytes) -> bytes:
    return encode_batch(
        [Record(at, 1_700_000_000_000, None, value) for at, value in enumerate(values)]
    )
