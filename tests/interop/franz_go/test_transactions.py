"""franz-go writes and relays in transactions."""

import pytest

from tests.interop.programs.process import Program, plain
from tests.interop.programs.transactions import Transactions
from tests.interop.samples import needs

pytestmark = [pytest.mark.interop, needs(22, 24, 25, 26, 28)]
DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 61, 65, 66


class TestTransactions(Transactions):
    def test_the_stable_end_is_where_the_open_transaction_starts(
        self, client: Program, source: str, producer: str
    ) -> None:
        client.call("produce", topic=source, records=plain(["before"]))
        client.call("transaction_begin", member=producer)
        self.write(client, producer, "a b")
        while_open = client.call("committed_end", topic=source)
        client.call("transaction_commit", member=producer)
        client.call("read", topic=source, count=3, committed=True)

        assert while_open == 1
        # The marker takes an offset too.
        assert client.call("committed_end", topic=source) == 4

    @needs(DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS)
    def test_open_transactions_are_listed_and_described(
        self, client: Program, source: str, producer: str
    ) -> None:
        client.call("transaction_begin", member=producer)
        self.write(client, producer, "a")

        listed = client.call("list_transactions")
        described = client.call("describe_transaction", transactional_id=producer)
        writers = client.call("describe_producers", topic=source)

        assert listed[producer] == "Ongoing"
        assert described == {"state": "Ongoing", "topics": [source]}
        assert writers == 1
