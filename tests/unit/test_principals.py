"""Names in client certificates become users as Kafka makes them."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID, ObjectIdentifier

from millstream.security.principals import distinguished_name, parse_rules, user_name


def certificate(*relative: list[tuple[ObjectIdentifier, str]]) -> bytes:
    name = x509.Name(
        [
            x509.RelativeDistinguishedName([x509.NameAttribute(oid, text) for oid, text in parts])
            for parts in relative
        ]
    )
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.DER)
    )


CN, OU = NameOID.COMMON_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME


@pytest.mark.parametrize(
    ("relative", "expected"),
    [
        (
            [[(NameOID.ORGANIZATION_NAME, "Example")], [(OU, "x")], [(CN, "svc")]],
            "CN=svc,OU=x,O=Example",
        ),
        ([[(CN, 'a,b+c="d"<e>;f\\g#h')]], 'CN=a\\,b\\+c\\=\\"d\\"\\<e\\>\\;f\\\\g\\#h'),
        ([[(CN, " a ")]], "CN=\\ a\\ "),
        ([[(NameOID.EMAIL_ADDRESS, "a@b")]], "1.2.840.113549.1.9.1=#1603614062"),
        ([[(NameOID.DOMAIN_COMPONENT, "example")], [(NameOID.USER_ID, "u")]], "UID=u,DC=example"),
    ],
)
def test_the_name_is_as_java_prints_it(
    relative: list[list[tuple[ObjectIdentifier, str]]], expected: str
) -> None:
    assert distinguished_name(certificate(*relative)) == expected


def test_all_parts_of_a_name_count() -> None:
    """CVE-2026-33248: another order or a name of many values is another user."""
    names = {
        distinguished_name(certificate([(CN, "svc")], [(OU, "x")])),
        distinguished_name(certificate([(OU, "x")], [(CN, "svc")])),
        distinguished_name(certificate([(OU, "x"), (CN, "svc")])),
        distinguished_name(certificate([(CN, "svc")])),
    }

    assert len(names) == 4


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        ("DEFAULT", "CN=svc,OU=x", "CN=svc,OU=x"),
        (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=kafka,OU=ServiceUsers,O=A", "kafka"),
        (r"RULE:^CN=(.*?),OU=(.*?)$/$1@$2/L,DEFAULT", "CN=Svc,OU=Ops", "svc@ops"),
        (r"RULE:^cn=(.*)$/$1/U", "cn=svc", "SVC"),
        (r"RULE:CN=a/x/,DEFAULT", "CN=ab", "CN=ab"),  # All of the name must match.
        (r"RULE:^CN=(.*)$/$1/", "OU=x", None),
        (r"RULE:^CN=a\/b$/slash\/ed/", "CN=a/b", "slash/ed"),
    ],
)
def test_the_first_rule_that_matches_names_the_user(
    rules: str, name: str, user: str | None
) -> None:
    assert user_name(name, parse_rules(rules)) == user


@pytest.mark.parametrize("rules", ["", "RULE:", "RULE:(/x/", "nonsense", "RULE:a/b/X"])
def test_rules_that_are_none_are_refused(rules: str) -> None:
    with pytest.raises(ValueError):
        parse_rules(rules)
