"""The class from which every error that Millstream raises on purpose derives.

Apart from `millstream.errors`, because the client raises such errors too and knows no broker.
"""


class MillstreamError(Exception):
    """Everything that Millstream raises on purpose, in a broker, a client, Spark or a test."""
