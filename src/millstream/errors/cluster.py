"""Errors of nodes, invitations and calls between nodes."""

from millstream.errors import RequestError


class UnknownNode(RequestError, LookupError):
    def __init__(self, node_id: int) -> None:
        super().__init__(f"there is no node {node_id}; see: millstream cluster status")
        self.node_id = node_id


class NodeRefused(RequestError):
    """A node cannot join, or become what a command asks for."""


class LevelRefused(RequestError):
    """A level of a feature is not one that all nodes know, or a command needs a later one."""


class NoMove(RequestError):
    """A partition is to stop moving, and does not move."""


class InvalidInvitation(RequestError, PermissionError):
    """A token was used before, has expired, or was never given."""


class UnknownInvitation(RequestError, LookupError):
    def __init__(self, name: str) -> None:
        super().__init__(f"there is no invitation {name[:100]!r}: it was used, or has expired")


class UnknownOutcome(RequestError):
    """A proposal was sent, and its answer was lost: it may still be applied."""

    retriable = True
