"""Classic clients that send nonsense, and frames that never end."""

from contextlib import ExitStack
from random import Random

from millstream.protocols.classic.wire import HEAD, Frame, Kind, encode
from tests.hostile.broker import TOPIC, Broker
from tests.hostile.mutants import mutated
from tests.support.classic import ClassicSocket

SEED = 37
MUTANTS = 1_000
MIB = 2**20
KINDS = [*Kind, 0, 10, 2**32 - 1]
NAMES = ("topic", "partition", "subscription_id", "subscriber_id", "start_offset", "ms-key", "x")
VALUES = (TOPIC, TOPIC, "s", "me", "0", "1", "-1", "9" * 30, "", "a/b", "x" * 300, "\u00e4", "=")
MARK = 2**64 - 1  # The number of a heartbeat that nothing else sends.


def assert_serves(client: ClassicSocket) -> None:
    assert client.ask(Kind.PUBLISH, b"still here", topic=TOPIC)["status"] == "success"


def wait_for_answers(client: ClassicSocket) -> None:
    """Until all that was asked has been answered."""
    client.send(encode(Frame(Kind.HEARTBEAT, MARK, 0, {})))
    while client.next()[:2] != (Kind.HEARTBEAT, MARK):
        pass


def arbitrary(random: Random) -> Frame:
    names = random.sample(NAMES, random.randrange(len(NAMES)))
    properties = {name: random.choice(VALUES) for name in names}
    number = random.choice([0, 1, random.randrange(MARK)])
    return Frame(random.choice(KINDS), number, random.randrange(2**64), properties, b"body")


def framed(frame: Frame, properties: bytes) -> bytes:
    size = HEAD.size + len(properties) + len(frame.body)
    head = HEAD.pack(size, frame.kind, frame.sequence, 0, len(properties), len(frame.body))
    return head + properties + frame.body


def test_no_property_ends_the_conversation(broker: Broker) -> None:
    random = Random(SEED)
    with ClassicSocket(broker.classic_address) as client:
        for number in range(MUTANTS):
            frame = arbitrary(random)
            spelt = encode(frame)
            properties = spelt[HEAD.size : len(spelt) - len(frame.body)]
            if number % 2:
                properties = mutated(properties, random)
            client.send(framed(frame, properties))
            if number % 100 == 0:
                wait_for_answers(client)
        wait_for_answers(client)


def test_frames_with_changed_bytes_do_no_harm(broker: Broker) -> None:
    random = Random(SEED)
    for _ in range(MUTANTS // 4):
        with ClassicSocket(broker.classic_address) as client:
            client.send(mutated(encode(arbitrary(random)), random))
    with ClassicSocket(broker.classic_address) as client:
        assert_serves(client)


def test_frames_that_are_announced_and_never_sent_take_no_memory(broker: Broker) -> None:
    size = 50 * MIB
    before = broker.resident_bytes()
    with ExitStack() as stack:
        for _ in range(200):
            client = stack.enter_context(ClassicSocket(broker.classic_address))
            client.send(HEAD.pack(size, Kind.PUBLISH, 1, 0, 0, size - HEAD.size) + b"x" * 100)
        with ClassicSocket(broker.classic_address) as good:
            assert_serves(good)
        assert broker.resident_bytes() - before < 32 * MIB
