"""`client.acls` and `client.roles`: gives rights, takes them away, and explains decisions.

ACLs speak Kafka's own APIs, so they work with Apache Kafka too; roles and explanations are
Millstream's.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from millstream.client.extensions.requests import BrokerRequests, refusal
from millstream.client.models import AclEntry, AclExplanation, Role
from millstream.security.acl_words import OPERATIONS, PATTERNS, PERMISSIONS, RESOURCES

# Imported late: the tables take a while, and few programs need them.
if TYPE_CHECKING:
    from millstream.kafka_wire.apis.security import DeleteAclsRequest

_ANY = 1
_FEATURE = "ACLs"


def _word(words: dict[str, int], number: int) -> str:
    return next((word for word, known in words.items() if known == number), str(number))


class Acls:
    def __init__(self, requests: BrokerRequests) -> None:
        self._requests = requests

    def list(
        self, *, principal: str | None = None, resource: str | None = None, name: str | None = None
    ) -> tuple[AclEntry, ...]:
        """The ACLs of a principal, of a kind of resource, of a name; without, all of them."""
        from millstream.kafka_wire.apis.security import DescribeAclsRequest, DescribeAclsResponse

        doing = "list ACLs"
        answer = self._requests.ask(
            DescribeAclsRequest(
                resource_type_filter=_ANY if resource is None else RESOURCES[resource],
                resource_name_filter=name,
                pattern_type_filter=_ANY,
                principal_filter=principal,
                host_filter=None,
                operation=_ANY,
                permission_type=_ANY,
            ),
            DescribeAclsResponse,
            feature=_FEATURE,
            doing=doing,
        )
        if answer.error_code:
            raise refusal(answer.error_code, answer.error_message or "", doing)
        return tuple(
            AclEntry(
                principal=rule.principal,
                permission=_word(PERMISSIONS, rule.permission_type),
                operation=_word(OPERATIONS, rule.operation),
                resource=_word(RESOURCES, each.resource_type),
                name=each.resource_name,
                pattern=_word(PATTERNS, each.pattern_type),
                host=rule.host,
            )
            for each in answer.resources
            for rule in each.acls
        )

    def create(self, entries: Sequence[AclEntry]) -> None:
        """Store ACLs; those that are there already stay. The first refusal is raised."""
        from millstream.kafka_wire.apis.security import CreateAclsRequest, CreateAclsResponse

        doing = "create ACLs"
        creations = [
            CreateAclsRequest.Creation(
                resource_type=RESOURCES[entry.resource],
                resource_name=entry.name,
                resource_pattern_type=PATTERNS[entry.pattern],
                principal=entry.principal,
                host=entry.host,
                operation=OPERATIONS[entry.operation],
                permission_type=PERMISSIONS[entry.permission],
            )
            for entry in entries
        ]
        answer = self._requests.ask(
            CreateAclsRequest(creations=creations),
            CreateAclsResponse,
            feature=_FEATURE,
            doing=doing,
        )
        for result in answer.results:
            if result.error_code:
                raise refusal(result.error_code, result.error_message or "", doing)

    def delete(self, entries: Sequence[AclEntry]) -> int:
        """Remove ACLs; return how many there were."""
        from millstream.kafka_wire.apis.security import DeleteAclsRequest, DeleteAclsResponse

        doing, count = "delete ACLs", 0
        answer = self._requests.ask(
            DeleteAclsRequest(filters=[_filter(entry) for entry in entries]),
            DeleteAclsResponse,
            feature=_FEATURE,
            doing=doing,
        )
        for result in answer.filter_results:
            if result.error_code:
                raise refusal(result.error_code, result.error_message or "", doing)
            count += len(result.matching_acls)
        return count

    def explain(
        self, principal: str, operation: str, resource: str, name: str, *, host: str = ""
    ) -> AclExplanation:
        """Whether a principal may do something, and the rule that says so."""
        from millstream.kafka_wire.apis.rights import ExplainAccessRequest, ExplainAccessResponse

        request = ExplainAccessRequest(
            principal=principal,
            host=host,
            operation=OPERATIONS[operation],
            resource_type=RESOURCES[resource],
            resource_name=name,
        )
        answer = self._requests.call(
            request, ExplainAccessResponse, feature=_FEATURE, doing="explain a right"
        )
        return AclExplanation(is_allowed=answer.is_allowed, rule=answer.rule)


class Roles:
    def __init__(self, requests: BrokerRequests) -> None:
        self._requests = requests

    def list(self) -> tuple[Role, ...]:
        """Every role, those that are built in first."""
        from millstream.kafka_wire.apis.rights import DescribeRolesRequest, DescribeRolesResponse

        answer = self._requests.call(
            DescribeRolesRequest(), DescribeRolesResponse, feature="roles", doing="list roles"
        )
        return tuple(
            Role(
                name=role.name,
                description=role.description,
                is_built_in=role.is_built_in,
                users=tuple(role.users),
            )
            for role in answer.roles
        )

    def create(self, name: str, *, description: str = "") -> None:
        """Make a role; its rights are ACLs of `Role:NAME`."""
        self._alter(name, 0, description, f"create role {name!r}")

    def delete(self, name: str) -> None:
        """Delete a role with its ACLs."""
        self._alter(name, 2, "", f"delete role {name!r}")

    def _alter(self, name: str, action: int, description: str, doing: str) -> None:
        from millstream.kafka_wire.apis.rights import AlterRolesRequest, AlterRolesResponse

        change = AlterRolesRequest.Change(name=name, action=action, description=description)
        answer = self._requests.call(
            AlterRolesRequest(changes=[change]), AlterRolesResponse, feature="roles", doing=doing
        )
        (result,) = answer.results
        if result.error_code:
            raise refusal(result.error_code, result.error_message or "", doing)


def _filter(entry: AclEntry) -> "DeleteAclsRequest.Filter":
    from millstream.kafka_wire.apis.security import DeleteAclsRequest

    return DeleteAclsRequest.Filter(
        resource_type_filter=RESOURCES[entry.resource],
        resource_name_filter=entry.name,
        pattern_type_filter=PATTERNS[entry.pattern],
        principal_filter=entry.principal,
        host_filter=entry.host,
        operation=OPERATIONS[entry.operation],
        permission_type=PERMISSIONS[entry.permission],
    )
