"""The names of views that nobody named: one for each topic and filter.

Pure. Whoever asks with the same filter reads the same view, so a group of consumers shares one. The
name does not begin with the topic's, or a subscription to `orders.*` would read records twice.
"""

import hashlib

PREFIX = "view-of-"
DIGEST_LENGTH = 12
NAME_LENGTH_MAX = 249  # Of a topic.


def view_name(topic: str, where: str) -> str:
    digest = hashlib.sha256(f"{topic}\n{where}".encode()).hexdigest()[:DIGEST_LENGTH]
    room = NAME_LENGTH_MAX - len(PREFIX) - 1 - DIGEST_LENGTH
    return f"{PREFIX}{topic[:room]}-{digest}"
