"""Errors of subjects, subscriptions and dead letters."""

from millstream.errors import RequestError


class InvalidSubject(RequestError):
    """A subject or a pattern of subjects that breaks the rules of its style."""

    def __init__(self, text: str, why: str) -> None:
        super().__init__(f"{text[:260]!r} is no subject: {why}")


class InvalidSubscription(RequestError):
    """A subscription whose parts contradict each other, or go beyond what is allowed."""


class SubscriptionExists(RequestError):
    def __init__(self, name: str) -> None:
        super().__init__(f"subscription {name!r} exists already")
        self.name = name


class UnknownSubscription(RequestError):
    def __init__(self, name: str) -> None:
        super().__init__(f"there is no subscription {name!r}")
        self.name = name


class UnknownDeadLetter(RequestError):
    """No such record, or it was replayed already."""

    def __init__(self, letter: object) -> None:
        super().__init__(f"there is no dead letter {letter}")
