"""`millstream explore`: topics, records and groups on a screen in the terminal.

`cli.explorer` has the screens. It is imported when the command runs: it needs Textual, which comes
with the extra `explore`.
"""

import sys

import click

from millstream.cli.completing import complete_topic
from millstream.cli.connection import Target, connection_options, open_client
from millstream.cli.render import Refused


@click.command()
@click.argument("topic", required=False, shell_complete=complete_topic)
@connection_options
def explore(target: Target, topic: str | None) -> None:
    """Look around in a cluster: topics, records, groups and their lag.

    Begins with the list of topics, or with TOPIC. The keys are shown at the bottom, all of them
    with `?`. Looking leaves no trace in the cluster; what changes something asks first.
    """
    try:
        from millstream.cli.explorer.app import Explorer
        from millstream.cli.explorer.session import ANSWER_S_MAX
    except ModuleNotFoundError as problem:
        if (problem.name or "").partition(".")[0] != "textual":
            raise
        raise Refused("explore needs textual, run: pip install 'millstream[explore]'") from None
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Refused(
            "explore needs a terminal; for scripts there are `millstream topic list`, "
            "`millstream consume` and `millstream group lag`, all with --output json"
        )
    with open_client(target, timeout_s=ANSWER_S_MAX) as client:
        if topic is not None:
            client.admin.describe_topic(topic)
        explorer = Explorer(client, topic)
        try:
            explorer.run()
        finally:
            explorer.session.close()
