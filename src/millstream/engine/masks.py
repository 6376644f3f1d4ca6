"""The setting `mask.paths` of a topic: parts of its records that screens hide.

A path is `key`, `header.NAME`, or a place in the value as JSON: `$` is all of it, `$.card.number`,
`$.items[*].price` and `$..email` are parts, at whatever depth the last one stands.
"""

import re
from functools import lru_cache
from typing import Any, Final, NamedTuple

MASK: Final = "•••"
PATHS_MAX = 32  # Of one topic.
PATH_LENGTH_MAX = 256
_STEP = re.compile(
    r"(?P<dots>\.\.?)(?P<name>[^.\[\]\s]+)|\[(?:(?P<index>\d{1,9})|(?P<any>\*)|'(?P<quoted>[^']+)')\]"
)


class Step(NamedTuple):
    """One step into a value."""

    name: str | int | None  # None: every member.
    is_deep: bool  # Of the value, and of all values inside of it.


class Masks(NamedTuple):
    """What is hidden of a record."""

    hides_key: bool = False
    headers: frozenset[str] = frozenset()
    places: tuple[tuple[Step, ...], ...] = ()  # In the value; the empty place is all of it.

    def __bool__(self) -> bool:
        return self.hides_key or bool(self.headers) or bool(self.places)

    def with_all(self, other: "Masks") -> "Masks":
        return Masks(
            self.hides_key or other.hides_key,
            self.headers | other.headers,
            tuple(dict.fromkeys(self.places + other.places)),
        )


@lru_cache(maxsize=1_000)
def masks_of(text: str) -> Masks:
    """The paths of the setting, which commas separate; raise `ValueError` for what is none."""
    paths = [path.strip() for path in text.split(",")] if text.strip() else []
    if len(paths) > PATHS_MAX:
        raise ValueError(f"{len(paths)} paths, at most {PATHS_MAX}")
    hides_key, headers, places = False, set(), []
    for path in paths:
        if len(path) > PATH_LENGTH_MAX:
            raise ValueError(f"a path of {len(path)} characters, at most {PATH_LENGTH_MAX}")
        if path == "key":
            hides_key = True
        elif path.startswith("header.") and len(path) > len("header."):
            headers.add(path.removeprefix("header."))
        else:
            places.append(_place(path))
    return Masks(hides_key, frozenset(headers), tuple(places))


def _place(path: str) -> tuple[Step, ...]:
    steps: list[Step] = []
    at = 1
    while path.startswith("$") and at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            break
        at = match.end()
        name: str | int | None = match["name"] or match["quoted"]
        if match["index"] is not None:
            name = int(match["index"])
        elif match["any"] is not None or name == "*":
            name = None
        steps.append(Step(name, match["dots"] == ".."))
    if not path.startswith("$") or at < len(path):
        raise ValueError(
            f"{path[:60]!r} is not key, header.NAME or a place such as $.card.number, "
            "$.items[*].price or $..email"
        )
    return tuple(steps)


# Any: JSON.
def masked(value: Any, place: tuple[Step, ...]) -> Any:
    """The value with `MASK` at a place, wherever it has that place."""
    if not place:
        return MASK
    step, *following = place
    behind = tuple(following)
    if isinstance(value, dict):
        fits = (lambda key: True) if step.name is None else (lambda key: key == step.name)
        items: dict[str, Any] = {
            key: masked(inner, behind) if fits(key) else inner for key, inner in value.items()
        }
        if step.is_deep:
            items = {key: masked(inner, place) for key, inner in items.items()}
        return items
    if isinstance(value, list):
        return [
            masked(inner, behind)
            if step.name is None or step.name == index
            else masked(inner, place)
            if step.is_deep
            else inner
            for index, inner in enumerate(value)
        ]
    return value
