"""The state that all screens share: the client, the threads for its calls, the open readers."""

from dataclasses import dataclass, field

from millstream.cli.explorer.calls import Calls
from millstream.cli.explorer.reader import Reader
from millstream.client import Client

# How long a call waits for the cluster: a person looks at the screen.
ANSWER_S_MAX = 10.0


@dataclass(frozen=True, slots=True)
class Session:
    client: Client
    calls: Calls = field(default_factory=Calls)
    _readers: list[Reader] = field(default_factory=list)

    def open_reader(self, topic: str) -> Reader:
        reader = Reader(self.client, topic)
        self._readers.append(reader)
        return reader

    def close_reader(self, reader: Reader) -> None:
        """Blocks for a moment: for `calls`."""
        reader.close()
        if reader in self._readers:
            self._readers.remove(reader)

    def close(self) -> None:
        for reader in list(self._readers):
            self.close_reader(reader)
