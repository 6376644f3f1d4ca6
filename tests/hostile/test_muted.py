"""A client that its quota mutes and that sends on: its requests are not held in memory."""

import socket

from millstream.kafka_wire.headers import RequestHeader, encode_request
from tests.hostile.broker import PRODUCE, Broker, Client, batch, produce_request
from tests.support.quotas import set_quotas

MIB = 2**20
FLOOD_BYTES = 256 * MIB
SILENT_SECONDS = 2


def flood(client: Client, frame: bytes) -> int:
    """Send until the broker has not read anything for a while; return how much went out."""
    client.socket.settimeout(SILENT_SECONDS)
    sent = 0
    while sent < FLOOD_BYTES:
        try:
            sent += client.socket.send(frame)
        except TimeoutError:
            return sent
    return sent


def test_who_does_not_wait_is_not_read_and_fills_no_memory(broker: Broker) -> None:
    set_quotas("{}:{}".format(*broker.address), "impatient", producer_byte_rate=1)
    chunks = encode_request(
        RequestHeader(PRODUCE, 9, 7, "impatient"), produce_request(batch(bytes(MIB // 2)), acks=0)
    )
    frame = b"".join(bytes(chunk) for chunk in chunks if not hasattr(chunk, "read"))
    memory = broker.resident_bytes()

    with Client(broker) as impatient, Client(broker) as other:
        impatient.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sent = flood(impatient, frame)

        # What went out is in the buffers of two sockets, most of it.
        assert sent < 64 * MIB
        assert broker.resident_bytes() - memory < 32 * MIB
        assert other.produce(batch(b"still here")).error_code == 0
