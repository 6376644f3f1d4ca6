"""`millstream topic`: create, list, describe, alter, delete."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from millstream.cli.completing import complete_topic
from millstream.cli.connection import Target, connected, connection_options, open_client
from millstream.cli.options import pairs
from millstream.cli.render import (
    Answer,
    CommandGroup,
    Refused,
    answered,
    card,
    confirm,
    rows,
    span_text,
    table,
    yes_option,
)
from millstream.view_names import is_automatic

if TYPE_CHECKING:
    from millstream.client import Client, TopicDescription, TopicHealth


@click.group(cls=CommandGroup)
def topic() -> None:
    """Create, look at and change topics."""


_settings = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A topic setting, such as retention.ms=60000; may be repeated.",
)


@topic.command()
@click.argument("name")
@click.option("--partitions", type=int, metavar="N", help="[default: the broker's]")
@click.option("--replicas", type=int, metavar="N", help="[default: the broker's]")
@_settings
@click.option("--if-not-exists", "is_lenient", is_flag=True, help="Fine if it is there already.")
@answered
@connected
def create(
    client: "Client",
    name: str,
    partitions: int | None,
    replicas: int | None,
    settings: tuple[str, ...],
    is_lenient: bool,
) -> Answer:
    """Create a topic."""
    from millstream.client import AlreadyExists

    try:
        client.admin.create_topic(
            name,
            partitions=partitions,
            replication_factor=replicas,
            settings=pairs(settings, "--set"),
        )
    except AlreadyExists:
        if not is_lenient:
            raise
        return Answer({"topic": name, "created": False}, f"topic {name} is there already")
    return Answer({"topic": name, "created": True}, f"created topic {name}")


@topic.command("list")
@click.option("--internal", "is_internal", is_flag=True, help="The broker's own topics as well.")
@click.option("--bytes", "has_bytes", is_flag=True, help="Their bytes on disk, replicas included.")
@click.option("--tag", metavar="TAG", help="Only topics whose setting tags has this word.")
@answered
@connected
def list_topics(client: "Client", is_internal: bool, has_bytes: bool, tag: str | None) -> Answer:
    """List the topics, and which of them are views of another."""
    # Only where asked for: the sizes need a connection of their own, and 150 ms of imports.
    sizes = _sizes(client) if has_bytes else {}
    view_of = {view.name: view.topic for view in client.views.list()}
    listed = client.admin.list_topics(with_internal=is_internal)
    about = {} if tag is None else _tagged(client, [topic.name for topic in listed], tag)
    topics: list[dict[str, object]] = [
        {
            "topic": topic.name,
            "partitions": topic.partition_count,
            "replicas": topic.replication_factor,
            **({"bytes": sizes.get(topic.name)} if has_bytes else {}),
            "view_of": view_of.get(topic.name),
            **about.get(topic.name, {}),
        }
        for topic in listed
        if tag is None or topic.name in about
    ]
    nothing = "no topics yet; `millstream topic create NAME` makes one"
    if tag is not None:
        nothing = f"no topic has the tag {tag}; `millstream topic alter NAME --set tags={tag}`"
    answer = rows(topics, nothing=nothing)
    if topics and not any(topic["view_of"] for topic in topics):
        answer = answer._replace(
            text=table([{k: v for k, v in topic.items() if k != "view_of"} for topic in topics])
        )
    return answer


def _tagged(client: "Client", names: list[str], tag: str) -> dict[str, dict[str, object]]:
    """Tags, owner and purpose of the topics that have the tag, by name."""
    tagged: dict[str, dict[str, object]] = {}
    for name, settings in client.admin.settings_of_topics(names).items():
        values = {each.name: each.value or "" for each in settings}
        tags = [word.strip() for word in values.get("tags", "").split(",")]
        if tag in tags:
            owner, purpose = values.get("owner") or None, values.get("purpose") or None
            tagged[name] = {"tags": tags, "owner": owner, "purpose": purpose}
    return tagged


def _sizes(client: "Client") -> dict[str, int]:
    """Bytes by topic; none where the brokers do not say, which is no reason to list nothing."""
    from millstream.client import ClientError

    try:
        return client.admin.topic_sizes()
    except ClientError:
        return {}


@topic.command()
@click.argument("name", shell_complete=complete_topic)
@click.option(
    "--health",
    "is_health",
    is_flag=True,
    help="How its logs are instead: watermarks, segments, bytes, index, lag.",
)
@answered
@connected
def describe(client: "Client", name: str, is_health: bool) -> Answer:
    """Show a topic's partitions, offsets, and the settings that are not at their default."""
    if is_health:
        health = client.health(name)
        return Answer(asdict(health), _health(health))
    topic = client.admin.describe_topic(name)
    return Answer(asdict(topic), _description(topic))


@topic.command()
@click.argument("name", shell_complete=complete_topic)
@click.option("--partitions", type=int, metavar="N", help="Grow to N partitions in total.")
@_settings
@click.option("--unset", multiple=True, metavar="KEY", help="Back to the default; repeatable.")
@answered
@connection_options
def alter(
    target: Target,
    name: str,
    partitions: int | None,
    settings: tuple[str, ...],
    unset: tuple[str, ...],
) -> Answer:
    """Change a topic's settings, or add partitions.

    With more partitions, records of a key may go to another partition than before.
    """
    changed = pairs(settings, "--set")
    if partitions is None and not changed and not unset:
        raise click.UsageError("Nothing to change: pass --partitions, --set or --unset.")
    with open_client(target) as client:
        # Settings first: if one is refused, nothing was done; partitions cannot be taken back.
        if changed or unset:
            client.admin.alter_topic(name, changed, unset=unset)
        if partitions is not None:
            client.admin.grow_topic(name, partitions)
    data = {"topic": name, "partitions": partitions, "set": changed, "unset": list(unset)}
    return Answer(data, f"altered topic {name}")


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_topic)
@yes_option
@answered
@connected
def delete(client: "Client", names: tuple[str, ...], is_yes: bool) -> Answer:
    """Delete topics with all their records."""
    known = {topic.name for topic in client.admin.list_topics(with_internal=True)}
    for name in names:
        if name not in known:
            raise Refused(
                f"there is no topic {name!r}; `millstream topic list` shows what is there"
            )
    views = client.views.list()
    left = [
        view.name
        for view in views
        if view.topic in names
        and view.name not in names
        # The broker deletes these with their topic.
        and not is_automatic(view.name, of=view.topic, where=view.where)
    ]
    if left:
        raise Refused(
            f"{', '.join(left)} would have nothing to show; `millstream view delete "
            f"{' '.join(left)}` first"
        )
    confirm(f"Delete {', '.join(names)} with all records?", is_yes=is_yes)
    shown = {view.name for view in views}
    for name in sorted(names, key=lambda name: name not in shown):  # Views before their topics.
        client.admin.delete_topic(name)
    return Answer({"deleted": list(names)}, f"deleted {', '.join(names)}")


def _health(health: "TopicHealth") -> str:
    partitions = [
        {
            "partition": partition.partition,
            "low": partition.low_watermark,
            "high": partition.high_watermark,
            "stable": partition.last_stable_offset,
            "log_end": partition.end_offset,
            "segments": partition.segment_count,
            "bytes": partition.size_bytes,
            "index_entries": partition.index_entries,
            "longest_stretch": partition.index_stretch_bytes_max,
            "index_gaps": partition.index_gaps,
        }
        for partition in health.partitions
    ]
    lags = [
        {
            "group": lag.group_id,
            "partition": lag.partition,
            "committed": lag.committed_offset,
            "lag": lag.records,
        }
        for lag in health.lags
    ]
    return "\n\n".join([table(partitions), table(lags) if lags else "no group reads it"])


def _description(topic: "TopicDescription") -> str:
    partitions = [
        {
            "partition": partition.partition,
            "leader": partition.leader_id,
            "replicas": list(partition.replica_ids),
            "in_sync": list(partition.in_sync_ids),
            "begin_offset": partition.begin_offset,
            "end_offset": partition.end_offset,
            "offsets": partition.offset_count,
        }
        for partition in topic.partitions
    ]
    head = {
        "topic": topic.name,
        "id": topic.topic_id,
        "is_internal": topic.is_internal,
        "retention": _retention({setting.name: setting.value for setting in topic.settings}),
    }
    changed = {setting.name: setting.value for setting in topic.settings if not setting.is_default}
    parts = [card(head), table(partitions)]
    if changed:
        parts.append(table([{"setting": name, "value": value} for name, value in changed.items()]))
    return "\n\n".join(parts)


def _retention(settings: dict[str, str | None]) -> str:
    """How long a record is kept, by the settings that apply, defaults included."""
    if settings.get("view.of"):
        return f"that of {settings['view.of']}"
    policy = settings.get("cleanup.policy") or "delete"
    age_ms = int(settings.get("retention.ms") or -1)
    size = int(settings.get("retention.bytes") or -1)
    parts = ["the last record of each key"] if "compact" in policy else []
    if "delete" in policy:
        parts.append("for ever" if age_ms < 0 else span_text(age_ms))
        if size >= 0:
            parts.append(f"at most {size:,} bytes in each partition")
    return ", ".join(parts)
