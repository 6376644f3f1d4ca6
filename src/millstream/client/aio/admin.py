"""`client.admin`, `views`, `dead_letters`, `delayed` and `users` for asyncio: every call, awaited.

Owns nothing: each call goes to a thread of the client, with the arguments of the blocking class,
whose docstrings hold here too. A test holds names, parameters and types of both in step.
"""

# The methods have the names of the blocking ones, `list` and `filter` among them.
from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from millstream.client._librdkafka.threads import Threads
    from millstream.client.admin import Admin
    from millstream.client.extensions.dead_letters import DeadLetters
    from millstream.client.extensions.delayed import DelayedRecords
    from millstream.client.extensions.users import Users
    from millstream.client.models import (
        Cluster,
        DeadLetter,
        DeadLetterStatistics,
        Delayed,
        DelayedPage,
        DelayedRecord,
        Group,
        GroupDescription,
        Identity,
        Lag,
        Partition,
        Redriven,
        Setting,
        StartPoint,
        Topic,
        TopicDescription,
        TopicPartition,
        Transaction,
        User,
        View,
    )
    from millstream.client.views import Views


class AsyncAdmin:
    """`await client.admin.list_topics(...)`: as `Admin`."""

    def __init__(self, admin: Admin, threads: Threads) -> None:
        self._admin = admin
        self._threads = threads

    async def describe_cluster(self) -> Cluster:
        return await self._threads.run(self._admin.describe_cluster)

    async def check(self) -> Cluster:
        """Reach the cluster, or say at once that no broker is there."""
        return await self._threads.run(self._admin.check)

    async def broker_settings(self, node_id: int | None = None) -> tuple[Setting, ...]:
        return await self._threads.run(self._admin.broker_settings, node_id)

    async def has_queues(self) -> bool:
        """Whether the brokers carry out delays, lifetimes and message ids. Asked for once."""
        return await self._threads.run(self._admin.has_queues)

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        settings: Mapping[str, object] | None = None,
        dry_run: bool = False,
    ) -> None:
        """Create a topic; what is not given is up to the broker. `dry_run` only checks."""
        return await self._threads.run(
            self._admin.create_topic,
            name,
            partitions=partitions,
            replication_factor=replication_factor,
            settings=settings,
            dry_run=dry_run,
        )

    async def list_topics(
        self, *, with_internal: bool = False, timeout_s: float | None = None
    ) -> tuple[Topic, ...]:
        """All topics by name, without the cluster's own unless asked for."""
        return await self._threads.run(
            self._admin.list_topics, with_internal=with_internal, timeout_s=timeout_s
        )

    async def topic_sizes(self) -> dict[str, int]:
        """Bytes that each topic takes on disk, with all its replicas. Views take none."""
        return await self._threads.run(self._admin.topic_sizes)

    async def describe_topic(self, name: str) -> TopicDescription:
        return await self._threads.run(self._admin.describe_topic, name)

    async def partitions(self, topic: str) -> tuple[Partition, ...]:
        return await self._threads.run(self._admin.partitions, topic)

    async def alter_topic(
        self, name: str, settings: Mapping[str, object] | None = None, *, unset: Iterable[str] = ()
    ) -> None:
        """Set some settings and put others back to their defaults; the rest stays."""
        return await self._threads.run(self._admin.alter_topic, name, settings, unset=unset)

    async def topic_settings(self, name: str, *, doing: str | None = None) -> tuple[Setting, ...]:
        """The settings of a topic. `doing` is what an error says cannot be done."""
        return await self._threads.run(self._admin.topic_settings, name, doing=doing)

    async def settings_of_topics(self, names: Iterable[str]) -> dict[str, tuple[Setting, ...]]:
        """The settings of many topics, asked for at once."""
        return await self._threads.run(self._admin.settings_of_topics, names)

    async def grow_topic(self, name: str, partitions: int) -> None:
        """Give the topic `partitions` in total. Records of a key may go elsewhere from then on."""
        return await self._threads.run(self._admin.grow_topic, name, partitions)

    async def delete_topic(self, name: str) -> None:
        return await self._threads.run(self._admin.delete_topic, name)

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Delete what is before these offsets (-1: everything); return the new beginnings."""
        return await self._threads.run(self._admin.delete_records, before)

    async def offsets(
        self, targets: Iterable[TopicPartition] | str, at: StartPoint
    ) -> dict[TopicPartition, int]:
        """The offsets where reading from `at` begins; after the last record this is the end."""
        return await self._threads.run(self._admin.offsets, targets, at)

    async def list_groups(self) -> tuple[Group, ...]:
        return await self._threads.run(self._admin.list_groups)

    async def describe_group(self, group: str) -> GroupDescription:
        return await self._threads.run(self._admin.describe_group, group)

    async def committed(self, group: str) -> dict[TopicPartition, int]:
        """The offsets that a group has committed."""
        return await self._threads.run(self._admin.committed, group)

    async def group_lag(self, group: str) -> tuple[Lag, ...]:
        """How far the group is behind, in all partitions of topics that it reads or has read."""
        return await self._threads.run(self._admin.group_lag, group)

    async def reset_group(
        self,
        group: str,
        to: StartPoint | Mapping[TopicPartition, int],
        *,
        topics: Iterable[str] | None = None,
        dry_run: bool = False,
    ) -> dict[TopicPartition, int]:
        """Move a group without members to `to`; return the offsets it has then."""
        return await self._threads.run(
            self._admin.reset_group, group, to, topics=topics, dry_run=dry_run
        )

    async def delete_group(self, group: str) -> None:
        return await self._threads.run(self._admin.delete_group, group)

    async def list_transactions(self) -> tuple[Transaction, ...]:
        """The transactions that the coordinators know, open or done."""
        return await self._threads.run(self._admin.list_transactions)


class AsyncViews:
    """`await client.views.list(...)`: as `Views`."""

    def __init__(self, views: Views, threads: Threads) -> None:
        self._views = views
        self._threads = threads

    async def create(self, name: str, *, of: str, where: str, dry_run: bool = False) -> None:
        """Let `name` show the records of topic `of` that the filter `where` takes."""
        return await self._threads.run(
            self._views.create, name, of=of, where=where, dry_run=dry_run
        )

    async def list(self) -> tuple[View, ...]:
        """All views by name."""
        return await self._threads.run(self._views.list)

    async def describe(self, name: str) -> View:
        return await self._threads.run(self._views.describe, name)

    async def delete(self, name: str) -> None:
        """Delete a view. The topic that it shows keeps its records."""
        return await self._threads.run(self._views.delete, name)

    async def filtered(self, topics: str | Iterable[str], where: str) -> dict[str, str]:
        """The names under which these topics are read through a filter, by topic."""
        return await self._threads.run(self._views.filtered, topics, where)


class AsyncDeadLetters:
    """`await client.dead_letters.list(...)`: as `DeadLetters`."""

    def __init__(self, letters: DeadLetters, threads: Threads) -> None:
        self._letters = letters
        self._threads = threads

    async def list(self, topic: str, *, limit: int = 100) -> list[DeadLetter]:
        """Those that wait, oldest first in each partition."""
        return await self._threads.run(self._letters.list, topic, limit=limit)

    async def stats(self, topic: str) -> DeadLetterStatistics:
        """The number of waiting letters, by reason and by group, and their times."""
        return await self._threads.run(self._letters.stats, topic)

    async def replay(
        self, topic: str, partition: int, offset: int, *, to: str | None = None
    ) -> tuple[TopicPartition, int]:
        """Send one back, once; return the partition and the offset that it has now."""
        return await self._threads.run(self._letters.replay, topic, partition, offset, to=to)

    async def redrive(
        self,
        topic: str,
        *,
        filter: str | None = None,  # noqa: A002 - the word that consumers have for it
        group: str | None = None,
        to: str | None = None,
        rate: float | None = None,
        count: int | None = None,
        dry_run: bool = False,
        progress: Callable[[int, int], object] | None = None,
    ) -> Redriven:
        """Send back all that wait at this moment, or those of a filter or of a group."""
        return await self._threads.run(
            self._letters.redrive,
            topic,
            filter=filter,
            group=group,
            to=to,
            rate=rate,
            count=count,
            dry_run=dry_run,
            progress=progress,
        )

    async def purge(self, topic: str) -> int:
        """Delete all of them, those that were sent back too; return how many records went."""
        return await self._threads.run(self._letters.purge, topic)


class AsyncDelayed:
    """`await client.delayed.list(...)`: as `DelayedRecords`."""

    def __init__(self, delayed: DelayedRecords, threads: Threads) -> None:
        self._delayed = delayed
        self._threads = threads

    async def list(
        self, topic: str | None = None, *, limit: int = 100, after: str | None = None
    ) -> DelayedPage:
        """Those of a topic, or of all, in the order of their arrival; at most 1,000 at once."""
        return await self._threads.run(self._delayed.list, topic, limit=limit, after=after)

    async def describe(self, id: str) -> DelayedRecord:  # noqa: A002
        """One of them with what will be delivered; `NotFound` if it does not wait any more."""
        return await self._threads.run(self._delayed.describe, id)

    async def cancel(self, id: str) -> Delayed:  # noqa: A002
        """Have it never delivered; `NotFound` if that is too late. Its message id is free again."""
        return await self._threads.run(self._delayed.cancel, id)


class AsyncUsers:
    """`await client.users.list()`: as `Users`."""

    def __init__(self, users: Users, threads: Threads) -> None:
        self._users = users
        self._threads = threads

    async def list(self) -> tuple[User, ...]:
        """All users, by name."""
        return await self._threads.run(self._users.list)

    async def describe(self, name: str) -> User:
        """One user; `NotFound` if there is none of that name."""
        return await self._threads.run(self._users.describe, name)

    async def create(self, name: str, password: str | None, *, roles: Sequence[str] = ()) -> None:
        """Make a user; without a password it holds roles for certificates and tokens."""
        await self._threads.run(self._users.create, name, password, roles=roles)

    async def alter(
        self, name: str, *, roles: Sequence[str] | None = None, is_enabled: bool | None = None
    ) -> None:
        """Change roles, or disable and enable a user; what is None stays."""
        await self._threads.run(self._users.alter, name, roles=roles, is_enabled=is_enabled)

    async def set_password(
        self, name: str, password: str, *, old: str | None = None, disconnect: bool = False
    ) -> None:
        """Give a user another password. With the `old` one a user may do so for itself."""
        await self._threads.run(
            self._users.set_password, name, password, old=old, disconnect=disconnect
        )

    async def delete(self, name: str) -> None:
        """Delete a user; its connections are closed."""
        await self._threads.run(self._users.delete, name)

    async def who_am_i(self) -> Identity:
        """The user that the broker takes this client for."""
        return await self._threads.run(self._users.who_am_i)
