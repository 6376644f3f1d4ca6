"""`client.users`: describes, makes, changes and deletes users, and says who this client is.

Passwords are salted here, as KIP-554 has it: the broker never sees one of another user.
"""

import hashlib
from collections.abc import Sequence
from secrets import token_bytes
from typing import TYPE_CHECKING

from millstream.client.extensions.requests import BrokerRequests, refusal
from millstream.client.models import Identity, User

# Imported late: the tables take a while, and few programs need them.
if TYPE_CHECKING:
    from millstream.kafka_wire.apis.users import AlterUsersRequest

ITERATIONS = 16_384
SALT_BYTES = 24
_HASHES = {1: "sha256", 2: "sha512"}
_FEATURE = "users"


class Users:
    def __init__(self, requests: BrokerRequests) -> None:
        self._requests = requests

    def list(self) -> tuple[User, ...]:
        """All users, by name."""
        return self._described(None, "list users")

    def describe(self, name: str) -> User:
        """One user; `NotFound` if there is none of that name."""
        (user,) = self._described([name], f"describe user {name!r}")
        return user

    def create(self, name: str, password: str | None, *, roles: Sequence[str] = ()) -> None:
        """Make a user; without a password it holds roles for certificates and tokens."""
        from millstream.kafka_wire.apis.users import NEW, AlterUsersRequest

        change = AlterUsersRequest.Change(
            name=name,
            existence=NEW,
            roles=list(roles),
            credentials=[] if password is None else _credentials(password),
        )
        self._alter(change, f"create user {name!r}")

    def alter(
        self, name: str, *, roles: Sequence[str] | None = None, is_enabled: bool | None = None
    ) -> None:
        """Change roles, or disable and enable a user; what is None stays."""
        from millstream.kafka_wire.apis.users import EXISTING, KEEP, AlterUsersRequest

        change = AlterUsersRequest.Change(
            name=name,
            existence=EXISTING,
            roles=None if roles is None else list(roles),
            enabled=KEEP if is_enabled is None else int(is_enabled),
        )
        self._alter(change, f"alter user {name!r}")

    def set_password(
        self, name: str, password: str, *, old: str | None = None, disconnect: bool = False
    ) -> None:
        """Give a user another password. With the `old` one a user may do so for itself."""
        from millstream.kafka_wire.apis.users import EXISTING, AlterUsersRequest

        change = AlterUsersRequest.Change(
            name=name,
            existence=EXISTING,
            credentials=_credentials(password),
            old_password=old,
            disconnects=disconnect,
        )
        self._alter(change, f"set the password of user {name!r}")

    def delete(self, name: str) -> None:
        """Delete a user; its connections are closed."""
        from millstream.kafka_wire.apis.users import AlterUsersRequest

        change = AlterUsersRequest.Change(name=name, is_deleted=True)
        self._alter(change, f"delete user {name!r}")

    def who_am_i(self) -> Identity:
        """The user that the broker takes this client for."""
        from millstream.kafka_wire.apis.users import WhoAmIRequest, WhoAmIResponse

        answer = self._requests.call(
            WhoAmIRequest(), WhoAmIResponse, feature=_FEATURE, doing="ask who I am"
        )
        return Identity(
            principal=answer.principal,
            roles=tuple(answer.roles),
            mechanism=answer.mechanism,
            listener=answer.listener,
            is_tls=answer.is_tls,
            address=answer.address,
        )

    def _described(self, names: Sequence[str] | None, doing: str) -> tuple[User, ...]:
        from millstream.kafka_wire.apis.users import DescribeUsersRequest, DescribeUsersResponse

        request = DescribeUsersRequest(names=None if names is None else [*names])
        answer = self._requests.call(request, DescribeUsersResponse, feature=_FEATURE, doing=doing)
        for user in answer.users:
            if user.error_code:
                raise refusal(user.error_code, user.error_message or "", doing)
        return tuple(
            User(
                name=user.name,
                roles=tuple(user.roles),
                is_enabled=user.is_enabled,
                mechanisms=tuple(user.mechanisms),
                created_ms=user.created_ms,
                updated_ms=user.updated_ms,
            )
            for user in answer.users
        )

    def _alter(self, change: "AlterUsersRequest.Change", doing: str) -> None:
        from millstream.kafka_wire.apis.users import AlterUsersRequest, AlterUsersResponse

        answer = self._requests.call(
            AlterUsersRequest(changes=[change]), AlterUsersResponse, feature=_FEATURE, doing=doing
        )
        (result,) = answer.results
        if result.error_code:
            raise refusal(result.error_code, result.error_message or "", doing)


def _credentials(password: str) -> "list[AlterUsersRequest.Change.Credential]":
    from millstream.kafka_wire.apis.users import AlterUsersRequest

    made = []
    for number, algorithm in _HASHES.items():
        salt = token_bytes(SALT_BYTES)
        salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, ITERATIONS)
        made.append(
            AlterUsersRequest.Change.Credential(
                mechanism=number, iterations=ITERATIONS, salt=salt, salted_password=salted
            )
        )
    return made
