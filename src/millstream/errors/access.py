"""Errors of users, roles and logins."""

from millstream.errors import RequestError


class UnknownUser(RequestError, LookupError):
    def __init__(self, name: str) -> None:
        super().__init__(
            f"user {name!r} does not exist; create it with: millstream user create NAME"
        )
        self.name = name


class UserExists(RequestError):
    def __init__(self, name: str) -> None:
        super().__init__(f"user {name!r} exists already")
        self.name = name


class DuplicateUser(RequestError, ValueError):
    """One request changes a user twice."""

    def __init__(self, name: str) -> None:
        super().__init__(f"user {name!r} stands twice in one request")
        self.name = name


class UnknownRole(RequestError, LookupError):
    def __init__(self, name: str) -> None:
        super().__init__(f"role {name!r} does not exist")
        self.name = name


class LoginFailed(RequestError, PermissionError):
    """The client could not prove who it is. It is told `text` only; `reason` is for the trail."""

    def __init__(self, text: str, reason: str, user: str = "") -> None:
        super().__init__(text)
        self.reason = reason
        self.user = user


class LoginRequired(RequestError, PermissionError):
    def __init__(self) -> None:
        super().__init__("authentication required")


class UnacceptableCredential(RequestError, ValueError):
    """Credentials that a user cannot have, in Kafka's words."""


class UnsupportedPrincipal(RequestError, ValueError):
    """An ACL is for a user or a role."""

    def __init__(self, principal: str) -> None:
        super().__init__(
            f"{principal[:100]!r} is no principal of an ACL; say User:NAME or Role:NAME"
        )


class TooManyAcls(RequestError):
    def __init__(self, acls_max: int) -> None:
        super().__init__(
            f"there may be {acls_max} ACLs; remove some, grant to roles, or raise limits.acls_max"
        )


class AuthorizationOff(RequestError):
    """ACLs are neither asked nor kept."""

    def __init__(self) -> None:
        super().__init__("No Authorizer is configured")
