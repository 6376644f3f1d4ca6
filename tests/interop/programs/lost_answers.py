"""A broker whose answer to the first Produce is lost: the client has to send it again."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.interop.forwarder import Forwarder
from tests.support.broker_process import BrokerProcess

PRODUCE = 0


class LosingForwarder(Forwarder):
    """Passes the first Produce on, and cuts the connection when the broker answers it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_awaiting = False
        self.lost_count = 0

    def is_question_passed(self, data: bytes) -> bool:
        # A request that is small comes in one piece: four bytes of size, then the API's key.
        if len(data) > 6 and self.lost_count == 0:
            self.is_awaiting |= struct.unpack_from(">h", data, 4)[0] == PRODUCE
        return True

    def is_answer_passed(self, data: bytes) -> bool:
        if not self.is_awaiting:
            return True
        self.is_awaiting = False
        self.lost_count += 1
        return False


@contextmanager
def losing_the_first_answer(directory: Path) -> Iterator[LosingForwarder]:
    forwarder = LosingForwarder()
    process = BrokerProcess(
        directory,
        ADVERTISED_PORT=forwarder.port,
        TIMING__GROUP_INITIAL_REBALANCE_DELAY_MS=100,
    )
    process.start()
    forwarder.target_port = process.port
    try:
        yield forwarder
    finally:
        forwarder.close()
        process.kill()
