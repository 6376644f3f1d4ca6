"""A topic of a stopped broker, one byte of which has changed on disk since."""

from pathlib import Path

from millstream.client import connect
from tests.support.broker_process import BrokerProcess
from tests.support.kafka_clients import produce_batch

TOPIC = "orders"
BATCHES, BATCH = 20, 50
BAD = 10 * BATCH  # The first offset of the batch that is damaged.
RECORDS = BATCHES * BATCH


def numbers(start: int, end: int) -> list[bytes]:
    """The values of the records at these offsets."""
    return [b"%06d" % at for at in range(start, end)]


def write_and_damage(home: Path) -> Path:
    """Fill partition 0 of `TOPIC`, stop the broker in order, and flip a bit of one record."""
    process = BrokerProcess(home)
    process.start()
    with connect(process.address) as client:
        client.admin.create_topic(TOPIC, partitions=1)
    for batch in range(BATCHES):
        values = numbers(batch * BATCH, (batch + 1) * BATCH)
        produce_batch(process.address, TOPIC, *values)
    process.stop()
    segment = next(
        path
        for path in (home / "data" / "logs").rglob("*.log")
        if b"%06d" % BAD in path.read_bytes()
    )
    data = bytearray(segment.read_bytes())
    data[data.index(b"%06d" % (BAD + 7))] ^= 1
    segment.write_bytes(bytes(data))
    return home
