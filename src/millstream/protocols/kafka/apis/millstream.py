"""Tables of what only Millstream has: a batch of transactions that ends as one.

The keys lie far behind Kafka's own, and are advertised only to clients that call themselves
Millstream's: other clients never see a key that they do not know.
"""

from millstream.protocols.kafka.schema import Bool, Int16, Int64, Message, String


class BeginBatchRequest(Message, kw_only=True):
    group: String


class BeginBatchResponse(Message, kw_only=True):
    error_code: Int16 = 0
    error_message: String | None = None
    term: Int64 = -1
    series: String = ""
    last_committed_batch: Int64 = -1


class EndBatchRequest(Message, kw_only=True):
    class Member(Message, kw_only=True):
        transactional_id: String
        producer_id: Int64
        producer_epoch: Int16

    group: String
    term: Int64
    series: String
    batch_id: Int64
    committed: Bool
    members: list[Member]


class EndBatchResponse(Message, kw_only=True):
    error_code: Int16 = 0
    error_message: String | None = None
