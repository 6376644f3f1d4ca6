"""`client.quotas`: limits what users, client ids and addresses may use a second.

Speaks Kafka's own APIs, so it works with Apache Kafka too.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from millstream.client.extensions.requests import BrokerRequests, refusal
from millstream.client.models import DEFAULT_ENTITY, Quota

if TYPE_CHECKING:
    from millstream.kafka_wire.apis.configs import QuotaEntity

_FEATURE = "quotas"
_WORDS = {"user": "user", "client-id": "client_id", "ip": "ip"}


class Quotas:
    def __init__(self, requests: BrokerRequests) -> None:
        self._requests = requests

    def list(self) -> tuple[Quota, ...]:
        """Every quota; `DEFAULT_ENTITY` stands for all users, client ids or addresses without
        one of their own."""
        from millstream.kafka_wire.apis.configs import (
            DescribeClientQuotasRequest,
            DescribeClientQuotasResponse,
        )

        doing = "list quotas"
        answer = self._requests.ask(
            DescribeClientQuotasRequest(components=[], strict=False),
            DescribeClientQuotasResponse,
            feature=_FEATURE,
            doing=doing,
        )
        if answer.error_code:
            raise refusal(answer.error_code, answer.error_message or "", doing)
        quotas = []
        for entry in answer.entries or ():
            names = {
                _WORDS[part.entity_type]: part.entity_name or DEFAULT_ENTITY
                for part in entry.entity
                if part.entity_type in _WORDS
            }
            limits = {value.key: value.value for value in entry.values}
            quotas.append(Quota(limits=limits, **names))
        return tuple(sorted(quotas, key=lambda q: (q.user or "", q.client_id or "", q.ip or "")))

    def set(
        self,
        limits: Mapping[str, float],
        *,
        user: str | None = None,
        client_id: str | None = None,
        ip: str | None = None,
    ) -> None:
        """Limit a user, a client id, both together, or an address; other limits stay."""
        self._alter(dict(limits), user, client_id, ip)

    def delete(
        self,
        *names: str,
        user: str | None = None,
        client_id: str | None = None,
        ip: str | None = None,
    ) -> None:
        """Take limits away; without names all that the holder has."""
        if not names:
            named = (user, client_id, ip)
            names = tuple(
                name
                for quota in self.list()
                if (quota.user, quota.client_id, quota.ip) == named
                for name in quota.limits
            )
        if names:
            self._alter(dict.fromkeys(names), user, client_id, ip)

    def _alter(
        self,
        changes: Mapping[str, float | None],
        user: str | None,
        client_id: str | None,
        ip: str | None,
    ) -> None:
        from millstream.kafka_wire.apis.configs import (
            AlterClientQuotasRequest,
            AlterClientQuotasResponse,
        )

        doing = "change quotas"
        entry = AlterClientQuotasRequest.Entry(
            entity=_entity(user, client_id, ip),
            ops=[
                AlterClientQuotasRequest.Entry.Operation(
                    key=key, value=0.0 if rate is None else float(rate), remove=rate is None
                )
                for key, rate in changes.items()
            ],
        )
        answer = self._requests.ask(
            AlterClientQuotasRequest(entries=[entry]),
            AlterClientQuotasResponse,
            feature=_FEATURE,
            doing=doing,
        )
        for result in answer.entries:
            if result.error_code:
                raise refusal(result.error_code, result.error_message or "", doing)


def _entity(user: str | None, client_id: str | None, ip: str | None) -> "list[QuotaEntity]":
    from millstream.kafka_wire.apis.configs import QuotaEntity

    return [
        QuotaEntity(entity_type=kind, entity_name=None if name == DEFAULT_ENTITY else name)
        for kind, name in (("user", user), ("client-id", client_id), ("ip", ip))
        if name is not None
    ]
