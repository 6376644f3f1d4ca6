"""Names to which the broker gives a meaning, as tasks and pipelines spell them.

Owns nothing but the spelling; what they mean is the broker's to say (docs/queues.md).
"""

from typing import Final

DLQ_SUFFIX: Final = ".dlq"  # Of the topic to which dead letters go.
DLQ_PREFIX: Final = "ms-dlq-"  # Of headers that say where a dead letter comes from, and why.
SUBJECT: Final = "ms-subject"
DEAD_SUBJECT: Final = "DLQ."  # Before the subject of a dead letter: its listeners do not get it.
# What asks the broker for something. A letter that kept them would ask again.
ACTING: Final = ("ms-delay-ms", "ms-deliver-at", "ms-message-id", "ms-ttl-ms")
