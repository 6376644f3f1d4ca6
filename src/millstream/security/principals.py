"""From a client certificate to a user: its distinguished name, and the rules that shorten it.

The name is as Java prints it (RFC 2253), so that rules and ACLs of a Kafka cluster stay as they
are. Rules are `ssl.principal.mapping.rules` (KIP-371), matched by RE2, which never backtracks.
"""

import re
from typing import NamedTuple

DEFAULT = "DEFAULT"
_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ESCAPED = frozenset(',=+<>#;"\\')
# Slashes and commas inside a pattern are escaped with a backslash.
_RULE = re.compile(
    r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)", re.DOTALL
)
RULES_LENGTH_MAX = 4_096


class Rule(NamedTuple):
    """DEFAULT has no pattern."""

    pattern: str | None
    replacement: str = ""
    case: str = ""


def distinguished_name(certificate: bytes) -> str:
    """The subject of a DER certificate, as Java's `X500Principal.getName` has it."""
    from cryptography.x509 import load_der_x509_certificate

    name = load_der_x509_certificate(certificate).subject
    return ",".join(
        "+".join(_attribute(part) for part in relative) for relative in reversed(list(name.rdns))
    )


def parse_rules(text: str) -> list[Rule]:
    """Read `RULE:pattern/replacement/[LU],…,DEFAULT`; raise `ValueError`."""
    import re2

    if len(text) > RULES_LENGTH_MAX:
        raise ValueError(f"rules of {len(text)} characters, at most {RULES_LENGTH_MAX}")
    rules: list[Rule] = []
    at = 0
    while at < len(text):
        match = _RULE.match(text, at)
        if match is None:
            raise ValueError(f"{text[at : at + 60]!r} is not RULE:pattern/replacement/[LU]")
        if match[1]:
            rules.append(Rule(None))
        else:
            pattern = match[2].replace("\\/", "/")
            try:
                re2.compile(pattern)
            except re2.error as problem:
                raise ValueError(f"the pattern {pattern!r} is not valid: {problem}") from None
            rules.append(Rule(pattern, match[3].replace("\\/", "/"), match[4]))
        at = match.end()
    if not rules:
        raise ValueError("there is no rule; DEFAULT keeps the name")
    return rules


def user_name(name: str, rules: list[Rule]) -> str | None:
    """The user of a distinguished name by the first rule that matches all of it, or None."""
    import re2

    for rule in rules:
        if rule.pattern is None:
            return name
        match = re2.fullmatch(rule.pattern, name)
        if match is not None:
            groups = [match.group(0), *match.groups("")]
            return _cased(_filled(rule.replacement, groups), rule.case)
    return None


def _filled(replacement: str, groups: list[str]) -> str:
    """The replacement with `$1` and the like filled in; numbers without a group stay."""

    def fill(reference: re.Match[str]) -> str:
        number = int(reference[1])
        return groups[number] if number < len(groups) else reference[0]

    return re.sub(r"\$(\d)", fill, replacement)


def _cased(text: str, case: str) -> str:
    if case == "L":
        return text.lower()
    return text.upper() if case == "U" else text


def _attribute(part: object) -> str:
    from cryptography.x509 import Name, NameAttribute, RelativeDistinguishedName

    assert isinstance(part, NameAttribute)
    oid = part.oid.dotted_string
    if oid in _KEYWORDS:
        return f"{_KEYWORDS[oid]}={_escaped(str(part.value))}"
    encoded = Name([RelativeDistinguishedName([part])]).public_bytes()
    # Name, relative name, attribute, and behind its OID the value.
    for _ in range(3):
        encoded = _contents(encoded)[0]
    _, value = _contents(encoded)
    return f"{oid}=#{value.hex()}"


def _contents(encoded: bytes) -> tuple[bytes, bytes]:
    """The contents of the first DER element, and what is behind it."""
    length, at = encoded[1], 2
    if length & 0x80:
        count = length & 0x7F
        length, at = int.from_bytes(encoded[2 : 2 + count]), 2 + count
    return encoded[at : at + length], encoded[at + length :]


def _escaped(text: str) -> str:
    spelled = "".join(
        f"\\{char}" if char in _ESCAPED else "\\00" if char == "\0" else char for char in text
    )
    start = len(spelled) - len(spelled.lstrip(" "))
    spelled = "\\ " * start + spelled[start:]
    end = len(spelled) - len(spelled.rstrip(" "))
    if end and start < len(text):
        spelled = spelled[: len(spelled) - end] + "\\ " * end
    return spelled
