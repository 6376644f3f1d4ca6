"""Requests with some bytes changed, left out or put in."""

from random import Random

# Lengths and counts that are wrong in ways of their own.
EDGES = (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\xff\xff")


def mutated(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice([1, 1, 1, 2, 5])):
        at = random.randrange(len(changed) + 1)
        match random.randrange(4):
            case 0:
                changed[at : at + 1] = random.randbytes(1)
            case 1:
                changed[at : at + 4] = random.choice(EDGES)
            case 2:
                del changed[at : at + random.randrange(8)]
            case _:
                changed[at:at] = random.randbytes(random.randrange(8))
    return bytes(changed)
