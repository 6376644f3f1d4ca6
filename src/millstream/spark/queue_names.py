"""Header and topic names with a meaning in the broker, for tasks and pipelines.

docs/queues.md has their meanings.
"""

from typing import Final

DLQ_SUFFIX: Final = ".dlq"  # Of the topic to which dead letters go.
DLQ_PREFIX: Final = "ms-dlq-"  # Of headers that say where a dead letter comes from, and why.
SUBJECT: Final = "ms-subject"
DEAD_SUBJECT: Final = "DLQ."  # Before the subject of a dead letter: its listeners do not get it.
# Headers with which a record asks the broker for something. A dead letter would ask again.
ACTING: Final = ("ms-delay-ms", "ms-deliver-at", "ms-message-id", "ms-ttl-ms")
