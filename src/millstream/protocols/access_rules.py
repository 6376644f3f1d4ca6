"""Rights that a request of any protocol asks for, as data: the words of the tables `access.RULES`.

A right is an operation and a kind of resource, abbreviated as below: `R T` is READ on a topic.
"""

from typing import Final, NamedTuple

from millstream.control.acls import AclOperation, ResourceType

OPERATIONS: Final = {
    "R": AclOperation.READ,
    "W": AclOperation.WRITE,
    "Cr": AclOperation.CREATE,
    "Dl": AclOperation.DELETE,
    "A": AclOperation.ALTER,
    "De": AclOperation.DESCRIBE,
    "CA": AclOperation.CLUSTER_ACTION,
    "DC": AclOperation.DESCRIBE_CONFIGS,
    "AC": AclOperation.ALTER_CONFIGS,
    "IW": AclOperation.IDEMPOTENT_WRITE,
}
RESOURCES: Final = {
    "T": ResourceType.TOPIC,
    "G": ResourceType.GROUP,
    "C": ResourceType.CLUSTER,
    "X": ResourceType.TRANSACTIONAL_ID,
}


class Rule(NamedTuple):
    """`needs` always; `also` in some forms of a request, or to see more in the answer."""

    needs: tuple[str, ...] = ()
    also: tuple[str, ...] = ()


def needs(*rights: str, also: tuple[str, ...] = ()) -> Rule:
    return Rule(rights, also)


NOTHING: Final = Rule()
