"""Python source of one function, written line by line and compiled once.

Why source and not nested closures: closures cost a call per field and a call per part, generated
code costs neither. Measured on Metadata v12 (100 topics of 6 partitions), closures over the same
tables took 2.0 times as long to encode and 2.4 times to decode. Compiling takes up to 3 ms, once
for each version that a client really uses. Every word of the source comes from our own tables,
never from a peer.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Source:
    """A function in the making: its lines, and the objects that its free names stand for."""

    def __init__(self, signature: str) -> None:
        self._lines = [f"def {signature}:"]
        self._objects: dict[str, object] = {}
        self._fresh_count = 0
        self._depth = 1

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    def fresh(self, stem: str) -> str:
        """Return a name that nothing else has."""
        self._fresh_count += 1
        return f"{stem}_{self._fresh_count}"

    def bind(self, stem: str, value: object) -> str:
        """Return a free name that stands for `value`."""
        name = self.fresh(stem)
        self._objects[name] = value
        return name

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """Write `opening` and indent what follows."""
        self.line(opening)
        self._depth += 1
        yield
        self._depth -= 1

    @property
    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def compile(self, title: str, known: dict[str, object]) -> Any:  # A function of any signature.
        """Return the function. `title` stands in tracebacks where a file name would."""
        (name,) = (line[4 : line.index("(")] for line in self._lines[:1])
        namespace = {**known, **self._objects}
        exec(compile(self.text, f"<kafka {title}>", "exec"), namespace)
        return namespace[name]
