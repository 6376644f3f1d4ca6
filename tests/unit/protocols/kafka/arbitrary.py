"""Arbitrary messages of any table, from a seed, with every field that a version has set."""

from random import Random
from uuid import UUID

from millstream.kafka_wire.apis.table import APIS, Api
from millstream.kafka_wire.schema import NO_ID, Field, Kind, Message, plain_fields, tagged_fields

Case = tuple[Api, str, int]
CASES: list[Case] = [
    (api, direction, version)
    for api in APIS.values()
    for direction in ("request", "response")
    for version in range(api.first, api.last + 1)
]
CASES_BY_API = {api.name: [case for case in CASES if case[0] is api] for api in APIS.values()}

_BITS = {Kind.INT8: 8, Kind.INT16: 16, Kind.INT32: 32, Kind.INT64: 64}
_ALPHABET = "abcXYZ-._ 09äß漢字🦀\0"


def case_id(case: Case) -> str:
    api, direction, version = case
    return f"{api.name}-{direction}-v{version}"


def message_type(case: Case) -> type[Message]:
    api, direction, _ = case
    return api.request if direction == "request" else api.response


def arbitrary(message: type[Message], version: int, random: Random) -> Message:
    """A message with random values in the fields that `version` has, defaults in the others."""
    values = {
        field.name: _value(field, version, random) for field in plain_fields(message, version)
    }
    for field in tagged_fields(message, version):
        value = field.default
        # A part that is there but says nothing: we write it, others leave it out.
        mute = None if field.is_array or field.message is None else field.message()
        while value in (field.default, mute) and random.random() < 0.7:
            value = _value(field, version, random)
        values[field.name] = field.default if value == mute else value
    return message(**values)


def _value(field: Field, version: int, random: Random) -> object:
    if field.is_nullable(version) and random.random() < 0.3:
        return None
    if field.is_array:
        # From 16 numbers and from 127 elements on the spelling takes other paths.
        count = random.choice([0, 1, 2, 3] if field.message else [0, 1, 3, 15, 16, 126, 127, 128])
        return [_element(field, version, random) for _ in range(count)]
    return _element(field, version, random)


def _element(field: Field, version: int, random: Random) -> object:
    match field.kind:
        case Kind.BOOLEAN:
            return random.random() < 0.5
        case Kind.FLOAT64:
            return random.uniform(-1e9, 1e9)
        case Kind.UUID:
            return random.choice([NO_ID, UUID(int=random.getrandbits(128))])
        case Kind.STRING:
            length = random.choice([0, 1, 5, 20, 130])
            return "".join(random.choice(_ALPHABET) for _ in range(length))
        case Kind.BYTES:
            return random.randbytes(random.choice([0, 1, 5, 200]))
        case Kind.RECORDS:
            return random.randbytes(random.choice([0, 61, 20_000]))
        case Kind.SPLICE:
            return [random.randbytes(random.choice([1, 61, 20_000]))]
        case Kind.MESSAGE:
            assert field.message is not None
            return arbitrary(field.message, version, random)
        case _:
            return _number(field, random)


def _number(field: Field, random: Random) -> int:
    if field.name.endswith("error_code"):
        return random.randint(-1, 129)
    if field.kind is Kind.INT64 and ("time" in field.name and "timeout" not in field.name):
        # Kio makes dates of them, and not every one of them may be missing.
        return random.choice([0, 1_700_000_000_123] + [-1] * ("start" not in field.name))
    if field.kind is Kind.UINT16:
        return random.choice([0, 2**15, 2**16 - 1])
    half = 2 ** (_BITS[field.kind] - 1)
    return random.choice([-half, half - 1, -1, 0, 1, random.randrange(-half, half)])
