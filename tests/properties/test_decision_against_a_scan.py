"""The decision by index equals one that scans all ACLs; order, copies and a restart change nothing.

The second half: the rule that an answer names gives the same answer alone.
"""

from ipaddress import ip_address, ip_network

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.control.access import Access
from millstream.control.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from millstream.control.commands import AddAcls, DeleteRole, PutRole, RemoveAcls, decode, encode
from millstream.control.decision import (
    Asker,
    Decision,
    Resource,
    Rules,
    asker_of,
    decide,
    decide_any,
)
from millstream.model import Session, user_principal
from tests.support.tiers import sized

NAMES = ("a", "ab", "abc", "b", "__a", "__ab", "*", "_")
PRINCIPALS = ("User:ann", "User:bob", "User:*", "Role:ops", "Role:dev")
HOSTS = ("*", "10.0.0.1", "10.0.0.0/24", "::ffff:10.0.0.1", "fe80::1")
ADDRESSES = ("10.0.0.1", "10.0.0.9", "::ffff:10.0.0.1", "fe80::1", "")
TYPES = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER)
ALLOWED_BY = {8: {3, 4, 6, 7}, 10: {11}}

acls = st.builds(
    Acl,
    resource_type=st.sampled_from(TYPES),
    resource_name=st.sampled_from(NAMES),
    pattern_type=st.sampled_from(PatternType),
    principal=st.sampled_from(PRINCIPALS),
    host=st.sampled_from(HOSTS),
    operation=st.sampled_from(AclOperation),
    permission=st.sampled_from(Permission),
)
questions = st.tuples(
    st.sampled_from(("ann", "bob")),
    st.sampled_from(((), ("ops",), ("dev", "consumer"), ("producer",), ("admin",), ("gone",))),
    st.sampled_from(ADDRESSES),
    st.sampled_from([op for op in AclOperation if op is not AclOperation.ALL]),
    st.builds(
        Resource,
        st.sampled_from(TYPES),
        st.sampled_from([name for name in NAMES if name != "*"]),
        st.sampled_from(("", "User:ann", "Role:ops")),
    ),
    st.booleans(),
)


def plain(address: str) -> object:
    if not address:
        return None
    parsed = ip_address(address)
    return getattr(parsed, "ipv4_mapped", None) or parsed


def at_home(host: str, address: str) -> bool:
    if host == "*":
        return True
    place = plain(address)
    if "/" in host:
        return place is not None and place in ip_network(host)
    return place is not None and place == plain(host)


def matches_name(acl: Acl, resource: Resource) -> bool:
    if acl.resource_type != resource.resource_type:
        return False
    if acl.pattern_type is PatternType.PREFIXED:
        return resource.name.startswith(acl.resource_name)
    return acl.resource_name in {"*", resource.name}


def naive(
    stored: list[Acl], asker: Asker, operation: AclOperation, resource: Resource, is_open: bool
) -> bool:
    mine = [
        acl
        for acl in stored
        if acl.principal in asker.principals
        and at_home(acl.host, asker.address)
        and matches_name(acl, resource)
    ]
    internal = resource.resource_type is ResourceType.TOPIC and resource.name.startswith("__")
    if any(a.permission is Permission.DENY and a.operation in {2, operation} for a in mine):
        return False
    if resource.owner in asker.principals or "admin" in asker.roles:
        return True
    kind = resource.resource_type
    if not internal:
        if "consumer" in asker.roles and kind != 4 and operation in {3, 8}:
            return True
        if "producer" in asker.roles and kind == 2 and operation in {4, 8}:
            return True
    if "producer" in asker.roles and kind == 4 and operation == 12:
        return True
    for acl in mine:
        if acl.permission is Permission.ALLOW:
            if internal and not acl.resource_name.startswith("__"):
                continue
            if acl.operation in {2, operation} | ALLOWED_BY.get(operation, set()):
                return True
    if not is_open or internal or any(matches_name(acl, resource) for acl in stored):
        return False
    return kind != 4 or operation in {5, 8, 10, 12}


def folded(stored: list[Acl]) -> Access:
    access = Access()
    access.apply(PutRole(name="ops"), 0)
    access.apply(PutRole(name="dev"), 1)
    command = decode(encode(AddAcls(acls=tuple(stored))))
    assert isinstance(command, AddAcls)
    access.apply(command, 2)
    return access


def answer(access: Access, question: tuple[object, ...]) -> tuple[Decision, Asker]:
    user, roles, address, operation, resource, is_open = question
    session = Session(
        principal=user_principal(str(user)),
        roles=roles,  # type: ignore[arg-type]
        address=str(address),
        mechanism="OAUTHBEARER",
    )
    asker = asker_of(access, session)
    rules = Rules(allows_without_acl=bool(is_open))
    return decide(access, rules, asker, operation, resource), asker  # type: ignore[arg-type]


@settings(max_examples=sized(2000), deadline=None)
@given(st.lists(acls, max_size=12), st.lists(acls, max_size=6), questions)
def test_the_index_answers_as_a_scan_does(
    stored: list[Acl], removed: list[Acl], question: tuple[object, ...]
) -> None:
    access = folded(stored)
    access.apply(RemoveAcls(acls=tuple(removed)), 3)
    left = [acl for acl in stored if acl not in removed]

    decision, asker = answer(access, question)

    _, _, _, operation, resource, is_open = question
    expected = naive(left, asker, operation, resource, bool(is_open))  # type: ignore[arg-type]
    assert decision.is_allowed == expected
    assert answer(folded(left[::-1] + left), question)[0].is_allowed == expected
    if isinstance(decision.rule, Acl):
        alone, _ = answer(folded([decision.rule]), question)
        assert alone.is_allowed == expected


@settings(max_examples=sized(1000), deadline=None)
@given(st.lists(acls, max_size=12), questions)
def test_some_topic_can_be_written_where_a_name_that_can_be_written_exists(
    stored: list[Acl], question: tuple[object, ...]
) -> None:
    access = folded(stored)
    user, roles, address, _, _, is_open = question
    rules = Rules(allows_without_acl=bool(is_open))
    session = Session(
        principal=user_principal(str(user)),
        roles=roles,  # type: ignore[arg-type]
        address=str(address),
        mechanism="OAUTHBEARER",
    )
    asker = asker_of(access, session)
    any_topic = decide_any(access, rules, asker, AclOperation.WRITE, ResourceType.TOPIC)
    names = [name for name in NAMES if name != "*"] + ["unheard-of"]

    for name in names:
        resource = Resource(ResourceType.TOPIC, name)
        if decide(access, rules, asker, AclOperation.WRITE, resource).is_allowed:
            assert any_topic.is_allowed


def test_a_deleted_role_takes_its_acls_with_it() -> None:
    rule = Acl(
        resource_type=ResourceType.TOPIC,
        resource_name="a",
        pattern_type=PatternType.LITERAL,
        principal="Role:ops",
        host="*",
        operation=AclOperation.READ,
        permission=Permission.ALLOW,
    )
    access = folded([rule])
    question = ("ann", ("ops",), "", AclOperation.READ, Resource(ResourceType.TOPIC, "a"), False)

    before = answer(access, question)[0]
    access.apply(DeleteRole(name="ops"), 3)
    access.apply(PutRole(name="ops"), 4)

    assert before == Decision(True, rule)
    assert not answer(access, question)[0].is_allowed
    assert len(access.acls) == 0
