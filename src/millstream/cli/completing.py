"""Shell completion of the names that only the broker knows: topics, groups and views.

Invariant: completion never fails and never prints. A broker that does not answer within
`ANSWER_S_MAX` completes to nothing.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from millstream.client import Client

ANSWER_S_MAX = 1.0  # A person waits with the Tab key under the finger.


def complete_topic(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _complete(
        ctx,
        incomplete,
        # The broker's own topics are completed once their underscores are typed.
        lambda client: (
            topic.name for topic in client.admin.list_topics(with_internal=incomplete[:1] == "_")
        ),
    )


def complete_group(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _complete(
        ctx, incomplete, lambda client: (group.group_id for group in client.admin.list_groups())
    )


def complete_view(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _complete(ctx, incomplete, lambda client: (view.name for view in client.views.list()))


def _complete(
    ctx: click.Context, incomplete: str, names: "Callable[[Client], Iterable[str]]"
) -> list[str]:
    import logging

    from millstream.cli.connection import choose_target, open_client
    from millstream.cli.options import pairs

    logging.disable()  # librdkafka logs each failed attempt to connect.
    flags = ctx.params
    try:
        target = choose_target(flags.get("bootstrap"), flags.get("context_name"), ctx)
        settings = target.settings | pairs(flags.get("client_settings") or (), "-X")
        with open_client(target._replace(settings=settings), timeout_s=ANSWER_S_MAX) as client:
            return sorted(name for name in names(client) if name.startswith(incomplete))
    except Exception:
        return []
    finally:
        logging.disable(logging.NOTSET)
