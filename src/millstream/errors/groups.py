"""Errors of groups: their members, generations and committed offsets."""

from millstream.errors import RequestError


class InvalidGroupId(RequestError):
    def __init__(self, group_id: str) -> None:
        super().__init__(f"{group_id[:260]!r} is not a group id: some text, not empty")


class GroupNotFound(RequestError):
    def __init__(self, group_id: str, kind: str = "group") -> None:
        super().__init__(f"there is no {kind} {group_id!r}")


class GroupNotEmpty(RequestError):
    """The group has members, so it stays."""

    def __init__(self, group_id: str) -> None:
        super().__init__(f"group {group_id!r} has members")


class GroupSubscribed(RequestError):
    """The group reads the topic at the moment, so its offsets there stay."""

    def __init__(self, group_id: str, topic: str) -> None:
        super().__init__(f"group {group_id!r} is subscribed to topic {topic!r}")


class GroupFull(RequestError):
    def __init__(self, members_max: int) -> None:
        super().__init__(f"the group has {members_max} members, which is all it may have")


class UnknownMember(RequestError):
    """Not a member, or not any more: join as a new one."""

    def __init__(self, member_id: str) -> None:
        super().__init__(f"the group has no member {member_id!r}")


class MemberIdRequired(RequestError):
    """Join again under this id, so that a lost answer leaves no ghost in the group."""

    retriable = True

    def __init__(self, member_id: str) -> None:
        super().__init__(f"join again as {member_id!r}")
        self.member_id = member_id


class FencedInstance(RequestError):
    """Another process has taken the place of this static member."""

    def __init__(self, instance_id: str) -> None:
        super().__init__(f"instance {instance_id!r} is held by another member")


class StaleGeneration(RequestError):
    def __init__(self, current: int, got: int) -> None:
        super().__init__(f"the group is in generation {current}, not {got}")


class StaleMemberEpoch(RequestError):
    """A commit or a question of a member that is not at the epoch it speaks of."""


class FencedMember(RequestError):
    """The member must give up all its partitions and join again."""


class UnreleasedInstance(RequestError):
    """Another member still is that instance, and has not said that it goes."""


class UnsupportedAssignor(RequestError):
    """There is no server-side assignor of that name."""


class InvalidPattern(RequestError):
    """A regular expression that cannot be read, or costs too much to match."""


class RebalanceInProgress(RequestError):
    """The group is on its way to a new generation: join again."""

    retriable = True

    def __init__(self) -> None:
        super().__init__("the group rebalances")


class InconsistentProtocol(RequestError):
    """The member offers no protocol that all others speak too, or another protocol type."""


class UnstableOffset(RequestError):
    """A transaction that is still open has committed an offset of this partition."""

    retriable = True

    def __init__(self, target: object) -> None:
        super().__init__(f"the offset of {target} waits for the end of a transaction")


class InvalidSessionTimeout(RequestError):
    def __init__(self, got_ms: int, low_ms: int, high_ms: int) -> None:
        super().__init__(f"session timeout {got_ms} ms, it must be in {low_ms} to {high_ms}")


class OffsetMetadataTooLarge(RequestError):
    def __init__(self, length: int, length_max: int) -> None:
        super().__init__(f"offset metadata of {length} characters, at most {length_max}")
