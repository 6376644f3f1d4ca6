"""Bodies of any class with values drawn at random, by its annotations."""

from random import Random
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from millstream.protocols.flymq.wire.shapes import Bytes, Flag, Integer, Text

_RANGES = {"i32": (-(2**31), 2**31 - 1), "u32": (0, 2**32 - 1)}
_RANGES |= {"i64": (-(2**63), 2**63 - 1), "u64": (0, 2**64 - 1)}
_ALPHABET = "abcXYZ-._ 09äß漢字\0"


def arbitrary(body: type, random: Random) -> Any:
    hints = get_type_hints(body, include_extras=True)
    return body(*(_value(hints[name], random) for name in body._fields))  # type: ignore[attr-defined]


def _value(annotation: Any, random: Random) -> Any:
    origin = get_origin(annotation)
    if origin is tuple:
        item = get_args(annotation)[0]
        return tuple(_value(item, random) for _ in range(random.randrange(4)))
    if origin is not Annotated:
        return arbitrary(annotation, random)
    inner, kind = get_args(annotation)
    match kind:
        case Integer():
            return random.choice([*_RANGES[kind.name], random.randint(*_RANGES[kind.name])])
        case Flag():
            return random.random() < 0.5
        case Bytes():
            return random.randbytes(random.randrange(20))
        case Text():
            return "x" + "".join(random.choices(_ALPHABET, k=random.randrange(20)))
        case _:
            return _value(inner, random)
