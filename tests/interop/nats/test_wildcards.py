"""Our wildcards and nats-server's: the same patterns, the same subjects, the same matches."""

from collections.abc import Iterator
from random import Random

import pytest

from millstream.engine.publish.subjects import Pattern, SubjectTrie
from millstream.errors.deliveries import InvalidSubject
from tests.interop.nats.server import NatsConnection, NatsServer

pytestmark = pytest.mark.interop

WORDS = ["a", "b", "c", "ab", "a*", "b>", "**", ">>"]
ROUNDS = 40


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsConnection]:
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    try:
        connection = server.connect()
        yield connection
        connection.close()
    finally:
        server.close()


def some_pattern(random: Random) -> str:
    tokens = [random.choice([*WORDS, "*", "*"]) for _ in range(random.randint(0, 4))]
    if not tokens or random.random() < 0.3:
        tokens.append(">")
    return ".".join(tokens)


def some_subject(random: Random) -> str:
    return ".".join(random.choice(WORDS) for _ in range(random.randint(1, 5)))


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_the_same_subjects_match_the_same_patterns(nats: NatsConnection, seed: int) -> None:
    random = Random(seed)
    patterns = sorted({some_pattern(random) for _ in range(40)})
    subjects = sorted({some_subject(random) for _ in range(60)})
    trie: SubjectTrie[int] = SubjectTrie()
    for number, pattern in enumerate(patterns):
        trie.add(Pattern.parse(pattern), number)

    theirs = nats.matches(patterns, subjects)

    assert {subject: set(trie.match(subject)) for subject in subjects} == theirs


@pytest.mark.parametrize(
    "text", ["a", "a.b", "a..b", ".a", "a.", "a.>.b", ">.a", "*.a", "a.>", ">", "*", "a*.b>", "**"]
)
def test_the_same_patterns_are_refused(nats: NatsConnection, text: str) -> None:
    try:
        Pattern.parse(text)
        is_refused = False
    except InvalidSubject:
        is_refused = True

    assert nats.refuses(text) == is_refused
