"""A broker that says what a test wants it to say, over a real socket.

Owns a listening socket and a thread. Answers by a table from request type to function; a function
may raise `HangUp` to close the connection instead.
"""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from millstream.kafka_wire.apis.discovery import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from millstream.kafka_wire.apis.table import APIS, advertised
from millstream.kafka_wire.frames import Frames
from millstream.kafka_wire.headers import RequestHeader, decode_request, encode_response
from millstream.kafka_wire.schema import Message

# A function from any request message to its response message.
Answer = Callable[[Any], Message]


class HangUp(Exception):
    """Close the connection without an answer."""


class FakeBroker:
    """Node `node_id`. `answers` may be changed while it runs; `seen` has every request."""

    def __init__(self, node_id: int = 1, *, tls: ssl.SSLContext | None = None) -> None:
        self.node_id = node_id
        self._tls = tls
        self.seen: list[tuple[RequestHeader, Message]] = []
        self.answers: dict[type[Message], Answer] = {ApiVersionsRequest: self.versions}
        self._server = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.address: tuple[str, int] = self._server.getsockname()
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def versions(self, request: ApiVersionsRequest) -> ApiVersionsResponse:
        return ApiVersionsResponse(api_keys=advertised(APIS))

    def leads(self, *topics: tuple[str, int], others: tuple["FakeBroker", ...] = ()) -> None:
        """Answer metadata: this node leads the given number of partitions of each topic."""
        self.answers[MetadataRequest] = lambda request: metadata(
            request, (self, *others), {name: [self.node_id] * count for name, count in topics}
        )

    def hang_up(self) -> None:
        """Close all connections; new ones are taken."""
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        # Closing alone would let a blocked accept take one more connection.
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._acceptor.join()
        self.hang_up()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        frames = Frames(frame_bytes_max=2**20)
        with suppress(HangUp, OSError), self._secured(connection) as stream:
            while data := stream.recv(2**16):
                for frame in frames.feed(data):
                    header, request = decode_request(frame, APIS)
                    self.seen.append((header, request))
                    response = self.answers[type(request)](request)
                    stream.sendall(
                        b"".join(bytes(chunk) for chunk in encode_response(header, response))  # type: ignore[arg-type]
                    )

    def _secured(self, connection: socket.socket) -> socket.socket:
        if self._tls is None:
            return connection
        return self._tls.wrap_socket(connection, server_side=True)


def metadata(
    request: MetadataRequest, brokers: tuple[FakeBroker, ...], leaders: dict[str, list[int]]
) -> MetadataResponse:
    """Say who leads which partition; topics that are not there are unknown."""
    names = sorted(leaders) if request.topics is None else [t.name or "" for t in request.topics]
    topic = MetadataResponse.Topic
    return MetadataResponse(
        brokers=[
            MetadataResponse.Broker(node_id=b.node_id, host=b.address[0], port=b.address[1])
            for b in brokers
        ],
        topics=[
            topic(
                error_code=0 if name in leaders else 3,
                name=name,
                partitions=[
                    topic.Partition(
                        partition_index=index, leader_id=leader, replica_nodes=[], isr_nodes=[]
                    )
                    for index, leader in enumerate(leaders.get(name, []))
                ],
            )
            for name in names
        ],
    )


@contextmanager
def fake_broker(node_id: int = 1, *, tls: ssl.SSLContext | None = None) -> Iterator[FakeBroker]:
    broker = FakeBroker(node_id, tls=tls)
    try:
        yield broker
    finally:
        broker.stop()
