"""`millstream txn`: lists transactions, and aborts one that hangs."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from millstream.cli.connection import connected
from millstream.cli.render import (
    Answer,
    CommandGroup,
    Refused,
    answered,
    confirm,
    fields,
    rows,
    yes_option,
)

if TYPE_CHECKING:
    from millstream.client import Client, Transaction


@click.group(cls=CommandGroup)
def txn() -> None:
    """Look at transactions, and abort one that hangs."""


@txn.command("list")
@answered
@connected
def list_transactions(client: "Client") -> Answer:
    """List the transactional ids that the broker knows, and their state."""
    transactions = [asdict(transaction) for transaction in client.admin.list_transactions()]
    return rows(transactions, nothing="no transactions yet")


@txn.command()
@click.argument("transactional_id")
@answered
@connected
def describe(client: "Client", transactional_id: str) -> Answer:
    """Show one transactional id: its producer and its state."""
    return fields(asdict(_find(client, transactional_id)))


@txn.command()
@click.argument("transactional_id")
@yes_option
@answered
@connected
def abort(client: "Client", transactional_id: str, is_yes: bool) -> Answer:
    """Abort the open transaction of an id, and fence its producer."""
    transaction = _find(client, transactional_id)
    confirm(
        f"Abort {transactional_id} ({transaction.state}) and fence its producer?", is_yes=is_yes
    )
    # InitProducerId ends what was open under the id: it fences the earlier producer.
    client.transaction(transactional_id)
    data = {"transactional_id": transactional_id, "was": transaction.state}
    return Answer(data, f"nothing is open under {transactional_id}; its producer is fenced")


def _find(client: "Client", transactional_id: str) -> "Transaction":
    for transaction in client.admin.list_transactions():
        if transaction.transactional_id == transactional_id:
            return transaction
    raise Refused(
        f"there is no transactional id {transactional_id!r}; `millstream txn list` shows them"
    )
