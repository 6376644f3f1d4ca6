"""Who owns which partition, as the members of a group tell it, and the rule they must keep."""

from collections.abc import Iterable


class Ownership:
    """Told by the rebalance callbacks of all members; knows the moment two own the same."""

    def __init__(self) -> None:
        self._owners: dict[int, str] = {}
        self.clashes: list[tuple[int, str, str]] = []

    def take(self, member: str, partitions: Iterable[int]) -> None:
        for partition in partitions:
            owner = self._owners.setdefault(partition, member)
            if owner != member:
                self.clashes.append((partition, owner, member))

    def give_up(self, member: str, partitions: Iterable[int]) -> None:
        for partition in partitions:
            if self._owners.get(partition) == member:
                del self._owners[partition]

    def of(self, member: str) -> set[int]:
        return {partition for partition, owner in self._owners.items() if owner == member}

    def is_shared_by(self, members: Iterable[str], partition_count: int) -> bool:
        """Every partition has an owner, and every one of these members has some."""
        names = set(members)
        return len(self._owners) == partition_count and set(self._owners.values()) == names
