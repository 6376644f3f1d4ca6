"""Any message comes back as it went; any bytes become a message or a `ProtocolError`."""

import contextlib
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import ProtocolError
from millstream.kafka_wire.apis.table import APIS
from millstream.kafka_wire.headers import (
    RequestHeader,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from millstream.kafka_wire.schema import Message
from tests.support.each import check_each
from tests.support.tiers import sized
from tests.unit.protocols.kafka.arbitrary import (
    CASES,
    CASES_BY_API,
    Case,
    arbitrary,
    case_id,
    message_type,
)

MUTATIONS_PER_CASE = 40
CUTS_PER_CASE = 60


def encode(case: Case, message: Message) -> bytes:
    api, direction, version = case
    header = RequestHeader(api.key, version, 5, "c")
    write = encode_request if direction == "request" else encode_response
    return b"".join(write(header, message))[4:]  # type: ignore[arg-type]


def decode(case: Case, frame: bytes) -> Message:
    api, direction, version = case
    if direction == "request":
        return decode_request(frame, served=APIS)[1]
    return decode_response(api, version, frame)[1]


def small(case: Case, random: Random) -> bytes:
    """A frame that takes no long to cut in many ways."""
    frames = (encode(case, arbitrary(message_type(case), case[2], random)) for _ in range(6))
    return min((frame for frame in frames if len(frame) > 40), key=len, default=b"")


def check_round_trip(case: Case) -> None:
    random = Random(f"round trip {case_id(case)}")

    for _ in range(5):
        message = arbitrary(message_type(case), case[2], random)

        frame = encode(case, message)

        assert decode(case, frame) == message
        assert decode(case, memoryview(bytearray(frame))) == message  # type: ignore[arg-type]


def check_cuts(case: Case) -> None:
    random = Random(f"cut {case_id(case)}")
    frame = small(case, random) or encode(case, arbitrary(message_type(case), case[2], random))
    cuts = random.sample(range(len(frame)), min(CUTS_PER_CASE, len(frame)))

    for cut in cuts:
        with pytest.raises(ProtocolError):
            decode(case, frame[:cut])


def check_mutations(case: Case) -> None:
    random = Random(f"mutation {case_id(case)}")
    frame = small(case, random) or encode(case, arbitrary(message_type(case), case[2], random))

    for _ in range(MUTATIONS_PER_CASE):
        changed = bytearray(frame)
        for _ in range(random.randint(1, 4)):
            at = random.randrange(len(changed))
            match random.randrange(3):
                case 0:
                    changed[at] = random.choice([0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)])
                case 1:
                    del changed[at]
                case _:
                    changed[at:at] = random.randbytes(random.randint(1, 3))
        with contextlib.suppress(ProtocolError):
            decode(case, bytes(changed))


@pytest.mark.parametrize("api", CASES_BY_API)
def test_every_message_comes_back_as_it_went(api: str) -> None:
    check_each(CASES_BY_API[api], check_round_trip, name=case_id)


@pytest.mark.parametrize("api", CASES_BY_API)
def test_a_frame_that_was_cut_is_refused(api: str) -> None:
    check_each(CASES_BY_API[api], check_cuts, name=case_id)


@pytest.mark.parametrize("api", CASES_BY_API)
def test_a_frame_that_was_changed_is_read_or_refused(api: str) -> None:
    check_each(CASES_BY_API[api], check_mutations, name=case_id)


@settings(deadline=None, max_examples=sized(300))
@given(st.sampled_from(CASES), st.binary(max_size=200))
def test_arbitrary_bytes_are_read_or_refused(case: Case, body: bytes) -> None:
    api, direction, version = case
    head = api.key.to_bytes(2) + version.to_bytes(2) if direction == "request" else b""

    with contextlib.suppress(ProtocolError):
        decode(case, head + b"\0\0\0\1" + body)
