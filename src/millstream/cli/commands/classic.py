"""`millstream classic`: the verbs of the classic broker, spoken over its own protocol.

Owns the commands; `millstream.classic` is the client they use. Two of them wait for records, and
print each as it comes.
"""

import json
import signal
from collections.abc import Callable
from functools import wraps
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import click

from millstream.cli.interrupts import interruptible
from millstream.cli.render import (
    Answer,
    CommandGroup,
    Refused,
    answered,
    confirm,
    output_option,
    to_json,
    yes_option,
)

if TYPE_CHECKING:
    from millstream.classic import BrokerClient, Message

_ARGUMENTS = {"self", "text", "data"}  # What the client calls other things.
_Command = Callable[..., Any]  # Whatever click calls.
_LOOK_S = 0.2  # How often a command that waits looks whether Ctrl-C was pressed.


@click.group(cls=CommandGroup)
def classic() -> None:
    """Create, publish and subscribe over the classic protocol (port 9999)."""


def _number(
    flag: str,
    *,
    least: int = 0,
    most: int | None = None,
    default: int | None = None,
    help: str,  # noqa: A002 It is what click calls it.
) -> Callable[[_Command], _Command]:
    """A flag that is a whole number."""
    return click.option(
        flag,
        type=click.IntRange(least, most),
        default=default,
        show_default=default is not None,
        metavar="N",
        help=help,
    )


def _joined(command: _Command) -> _Command:
    """Hand a command its client, connected for as long as it runs."""

    @click.option("--host", default="127.0.0.1", show_default=True, help="Where the broker is.")
    @_number("--port", least=1, most=65_535, default=9999, help="The port of its classic listener.")
    @click.option("--client-id", metavar="NAME", help="How the broker knows this client.")
    @wraps(command)
    def run(host: str, port: int, client_id: str | None, **options: Any) -> Any:
        from millstream.classic import BrokerClient

        with BrokerClient(host, port, client_id) as client:
            return command(client=client, **options)

    return run


@classic.command("create-topic")
@click.argument("topic")
@_number("--partitions", least=1, default=1, help="Logs that it is split into.")
@_number("--retention", least=1, default=24, help="Hours that a record is kept.")
@answered
@_joined
def create_topic(client: "BrokerClient", topic: str, partitions: int, retention: int) -> Answer:
    """Create TOPIC."""
    _check(client, client.create_topic(topic, partitions, retention))
    done = {"topic": topic, "partitions": partitions, "retention_hours": retention}
    return Answer(done, f"created topic {topic} with {partitions} partitions")


@classic.command("create-subscription")
@click.argument("subscription")
@click.argument("topic")
@_number("--offset", default=0, help="Where to begin.")
@answered
@_joined
def create_subscription(
    client: "BrokerClient", subscription: str, topic: str, offset: int
) -> Answer:
    """Create SUBSCRIPTION of TOPIC; it keeps its offset while no client has joined it."""
    _check(client, client.create_subscription(subscription, topic, offset))
    done = {"subscription": subscription, "topic": topic, "offset": offset}
    return Answer(done, f"created subscription {subscription} of {topic} from offset {offset}")


@classic.command("delete-subscription")
@click.argument("subscription")
@yes_option
@answered
@_joined
def delete_subscription(client: "BrokerClient", subscription: str, is_yes: bool) -> Answer:
    """Delete SUBSCRIPTION and its offset."""
    confirm(f"Delete subscription {subscription}?", is_yes=is_yes)
    _check(client, client.delete_subscription(subscription))
    return Answer({"subscription": subscription}, f"deleted subscription {subscription}")


@classic.command()
@click.argument("topic")
@click.argument("message")
@_number("--partition", help="Where to write it.")
@click.option("--properties", metavar="JSON", help='Such as \'{"priority": "high"}\'.')
@answered
@_joined
def publish(
    client: "BrokerClient", topic: str, message: str, partition: int | None, properties: str | None
) -> Answer:
    """Publish MESSAGE to TOPIC."""
    _check(client, client.publish_text(topic, message, partition, **_read(properties)))
    return Answer({"topic": topic}, f"published to {topic}")


@classic.command("join-subscription")
@click.argument("subscription")
@_number("--count", least=1, help="End after so many records.")
@output_option
@_joined
def join_subscription(
    client: "BrokerClient", subscription: str, count: int | None, output: str
) -> None:
    """Join SUBSCRIPTION and print the records that come, until Ctrl-C."""
    _print(lambda take: client.subscribe_to_subscription(subscription, take), client, count, output)


@classic.command()
@click.argument("topic")
@_number("--partition", help="Only this partition.")
@_number("--offset", default=0, help="Where to begin.")
@_number("--count", least=1, help="End after so many records.")
@output_option
@_joined
def subscribe(
    client: "BrokerClient",
    topic: str,
    partition: int | None,
    offset: int,
    count: int | None,
    output: str,
) -> None:
    """Print the records of TOPIC from an offset on, until Ctrl-C."""

    def join(take: "Callable[[Message], object]") -> bool:
        def take_ours(message: "Message") -> None:
            if partition is None or message.properties["partition"] == str(partition):
                take(message)

        return client.subscribe(topic, offset=offset, handler=take_ours)

    try:
        _print(join, client, count, output)
    finally:
        if client.is_connected:
            client.unsubscribe(topic)


# -- parts -----------------------------------------------------------------------------------------


def _check(client: "BrokerClient", is_done: bool) -> None:
    if not is_done:
        raise Refused(client.last_error)


def _read(properties: str | None) -> dict[str, str]:
    if properties is None:
        return {}
    try:
        parsed = json.loads(properties)
    except json.JSONDecodeError as problem:
        raise click.BadParameter(f"not JSON: {problem}", param_hint="--properties") from None
    if not isinstance(parsed, dict):
        raise click.BadParameter("not a JSON object", param_hint="--properties")
    from millstream.protocols.classic.translation import OWN_PROPERTIES
    from millstream.protocols.classic.wire import encodable

    read = {name: str(value) for name, value in parsed.items()}
    for name, value in read.items():
        if name in OWN_PROPERTIES | _ARGUMENTS or not encodable(name, value):
            raise click.BadParameter(f"{name!r} cannot be one", param_hint="--properties")
    return read


def _print(
    join: "Callable[[Callable[[Message], object]], bool]",
    client: "BrokerClient",
    count: int | None,
    output: str,
) -> None:
    arrived: SimpleQueue[Message] = SimpleQueue()
    with interruptible(signal.SIGINT, signal.SIGTERM) as is_enough:
        _check(client, join(arrived.put))
        shown = 0
        while shown != count and not is_enough():
            try:
                message = arrived.get(timeout=_LOOK_S)
            except Empty:
                if not client.is_connected:
                    raise Refused("the broker closed the connection") from None
                continue
            click.echo(_line(message, output))
            shown += 1


def _line(message: "Message", output: str) -> str:
    properties, body = message.properties, message.body.decode(errors="replace")
    if output == "json":
        return to_json(
            {"offset": message.sequence_number, "value": body, "properties": dict(properties)}
        )
    place = f"{properties.get('topic')}@{message.sequence_number}"
    return f"[{place}] (sub: {properties.get('subscription_id')}) {body}"
