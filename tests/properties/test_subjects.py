"""Wildcards against a naive matcher, one pattern at a time and all at once in the trie."""

from hypothesis import given
from hypothesis import strategies as st

from millstream.engine.publish.subjects import Pattern, Style, SubjectTrie

WORDS = st.sampled_from(["a", "b", "c", "ab"])
SUBJECTS = {
    Style.DOT: st.lists(WORDS, min_size=1, max_size=5).map(".".join),
    # MQTT has empty levels, and a pattern can ask for one.
    Style.SLASH: st.lists(WORDS | st.just(""), min_size=1, max_size=5)
    .map("/".join)
    .filter(lambda text: text != ""),
}


def patterns(style: Style) -> st.SearchStrategy[str]:
    wild = style.value
    words = WORDS if style is Style.DOT else WORDS | st.just("")
    tokens = st.lists(words | st.just(wild.any_token), max_size=5)
    ends = st.sampled_from([[], [wild.tail]])
    joined = st.tuples(tokens, ends).map(lambda both: wild.separator.join(both[0] + both[1]))
    return joined.filter(lambda text: text != "")


def naive(pattern: list[str], subject: list[str], style: Style) -> bool:
    """By definition, token by token."""
    wild = style.value
    if not pattern:
        return not subject
    if pattern[0] == wild.tail:
        return len(subject) >= wild.tail_least
    if not subject:
        return False
    return pattern[0] in (subject[0], wild.any_token) and naive(pattern[1:], subject[1:], style)


STYLED = st.sampled_from(list(Style)).flatmap(
    lambda style: st.tuples(st.just(style), patterns(style), SUBJECTS[style])
)


@given(STYLED)
def test_a_pattern_matches_what_its_definition_says(case: tuple[Style, str, str]) -> None:
    style, text, subject = case
    separator = style.value.separator

    matches = Pattern.parse(text, style).matches(subject)

    assert matches == naive(text.split(separator), subject.split(separator), style)


def any_pattern(style: Style) -> st.SearchStrategy[Pattern]:
    return patterns(style).map(lambda text: Pattern.parse(text, style))


@given(
    st.lists(any_pattern(Style.DOT) | any_pattern(Style.SLASH), max_size=20),
    st.sets(st.integers(0, 19)),
    st.lists(SUBJECTS[Style.DOT] | SUBJECTS[Style.SLASH], max_size=10),
)
def test_the_trie_finds_exactly_the_patterns_that_match(
    listed: list[Pattern], removed: set[int], subjects: list[str]
) -> None:
    trie: SubjectTrie[int] = SubjectTrie()
    for number, pattern in enumerate(listed):
        trie.add(pattern, number)
    for subject in subjects:
        trie.match(subject)  # What is remembered must not outlive a removal.
    for number in sorted(removed):
        if number < len(listed):
            assert trie.remove(listed[number], number)
            assert not trie.remove(listed[number], number)

    kept = {n: pattern for n, pattern in enumerate(listed) if n not in removed}

    assert len(trie) == len(kept)
    for subject in subjects:
        matches = trie.match(subject)
        assert len(matches) == len(set(matches))
        assert set(matches) == {n for n, pattern in kept.items() if pattern.matches(subject)}


@given(st.lists(any_pattern(Style.DOT) | any_pattern(Style.SLASH), max_size=20))
def test_an_empty_trie_is_small_again(listed: list[Pattern]) -> None:
    trie: SubjectTrie[int] = SubjectTrie()
    for number, pattern in enumerate(listed):
        trie.add(pattern, number)
    for number, pattern in enumerate(listed):
        trie.remove(pattern, number)

    assert len(trie) == 0
    assert not any(trie._roots.values())
