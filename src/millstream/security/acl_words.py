"""The words of ACLs as users write them, with the numbers of Kafka's wire.

The client and the command line share them; `millstream --help` lists them without a client.
"""

RESOURCES = {"topic": 2, "group": 3, "cluster": 4, "transactional-id": 5}
OPERATIONS = {
    "all": 2,
    "read": 3,
    "write": 4,
    "create": 5,
    "delete": 6,
    "alter": 7,
    "describe": 8,
    "cluster-action": 9,
    "describe-configs": 10,
    "alter-configs": 11,
    "idempotent-write": 12,
}
PATTERNS = {"literal": 3, "prefixed": 4}
PERMISSIONS = {"deny": 2, "allow": 3}
CLUSTER = "kafka-cluster"  # The only name of a cluster in an ACL.
