"""Rules for the console's own files: imports, sizes, colours; data never becomes markup."""

import hashlib
import re
from pathlib import Path

from millstream.protocols.http.operate.console import imports_of, read_site
from tests.support.source_tree import ROOT

CONSOLE = Path(ROOT) / "src/millstream/console"
TESTS = Path(ROOT) / "tests"
LINES_MAX = 300
PACKED_BYTES_MAX = 400_000
FIRST_PAGE_PACKED_BYTES_MAX = 150_000
IMPORT = re.compile(r"^import [^'\"]*['\"](\.[^'\"]+)['\"]", re.MULTILINE)
TEXT_CONTRAST_MIN = 4.5


def own_modules() -> dict[str, str]:
    return {
        path.relative_to(CONSOLE).as_posix(): path.read_text()
        for path in sorted(CONSOLE.rglob("*.js"))
        if "vendor" not in path.parts
    }


def imported(name: str, text: str) -> list[str]:
    return [
        (CONSOLE / name).parent.joinpath(target).resolve().relative_to(CONSOLE).as_posix()
        for target in IMPORT.findall(text)
    ]


def test_an_import_names_a_file_that_is_there() -> None:
    missing = {
        (name, target)
        for name, text in own_modules().items()
        for target in imported(name, text)
        if not (CONSOLE / target).is_file()
    }

    assert missing == set()


def test_pages_know_parts_and_data_and_no_other_page() -> None:
    page = re.compile(r"pages/([a-z_]+)[.\w]*\.js")
    crossing = {
        (name, target)
        for name, text in own_modules().items()
        for target in imported(name, text)
        if (of := page.fullmatch(name)) and (to := page.fullmatch(target)) and of[1] != to[1]
    }

    assert crossing == set()


def test_data_knows_no_part_and_parts_know_no_page() -> None:
    ranks = {"vendor": 0, "data": 1, "words.js": 1, "parts": 2, "pages": 3}
    upward = {
        (name, target)
        for name, text in own_modules().items()
        for target in imported(name, text)
        if ranks.get(name.split("/")[0], 9) < ranks.get(target.split("/")[0], 9)
    }

    assert upward == set()


def test_modules_do_not_import_in_a_circle() -> None:
    graph = {name: imported(name, text) for name, text in own_modules().items()}

    def reaches(start: str) -> set[str]:
        reached: set[str] = set()
        waiting = list(graph[start])
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                waiting += graph.get(name, [])
        return reached

    assert [name for name in graph if name in reaches(name)] == []


def test_a_module_is_as_long_as_a_person_reads_at_once() -> None:
    long = {name: n for name, text in own_modules().items() if (n := text.count("\n")) > LINES_MAX}

    assert long == {}


def test_data_becomes_text_and_never_markup() -> None:
    makes_markup = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySet|\beval\("
        r"|new Function"
    )
    users = [name for name, text in own_modules().items() if makes_markup.search(text)]

    assert users == []


def test_no_address_outside_of_the_broker_is_named() -> None:
    outside = re.compile(r"https?://(?!www\.w3\.org/2000/svg)")
    files = [*CONSOLE.rglob("*.js"), *CONSOLE.rglob("*.css"), *CONSOLE.rglob("*.html")]
    naming = [
        path.name
        for path in files
        if "vendor" not in path.parts and outside.search(path.read_text())
    ]

    assert naming == []


def test_only_the_tokens_name_colours() -> None:
    colour = re.compile(r"#[0-9a-fA-F]{3,8}\b(?![^{]*\{)|\brgb\(|\bhsl\(")
    naming = [
        path.name
        for path in CONSOLE.joinpath("style").glob("*.css")
        if path.name != "tokens.css" and colour.search(path.read_text())
    ]

    assert naming == []


def test_vendored_modules_are_those_of_the_list() -> None:
    listed = dict(
        re.findall(
            r"\| `([\w.]+\.js)` \|.*?`([0-9a-f]{64})` \|",
            (CONSOLE / "vendor/VENDORED.md").read_text(),
        )
    )
    there = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in CONSOLE.joinpath("vendor").glob("*.js")
    }

    assert listed == there


def test_the_files_fit_into_their_bounds() -> None:
    site = read_site(CONSOLE)
    contents = {name: file.plain for name, file in site.files.items()}
    first = dict.fromkeys(
        imports_of(contents, "app.js") + imports_of(contents, "pages/overview.js")
    )
    styles = [name for name in contents if name.endswith(".css")]

    assert sum(len(file.packed) for file in site.files.values()) < PACKED_BYTES_MAX
    assert (
        sum(len(site.files[name].packed) for name in (*first, *styles))
        < FIRST_PAGE_PACKED_BYTES_MAX
    )


def test_the_page_loads_every_module_of_the_first_view_at_once() -> None:
    site = read_site(CONSOLE)
    page = site.page.plain.decode()

    assert f'<script type="module" src="/console/{site.number}/app.js">' in page
    assert f"/console/{site.number}/parts/ui.js" in page
    assert f"/console/{site.number}/pages/overview.js" in page
    assert "{" not in page.split("<body>")[0].replace("{base}", "{")


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one_colour: str, other: str) -> float:
    light, dark = sorted((luminance(one_colour), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_every_text_colour_is_legible_on_every_ground() -> None:
    text = (CONSOLE / "style/tokens.css").read_text()
    light, dark = text.split("@media (prefers-color-scheme: dark)", 1)
    too_faint = []
    for theme, block in (("light", light), ("dark", dark.split(":root[data-theme=dark]")[0])):
        tokens = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
        for ground in ("bg", "surface", "hover", "chosen"):
            for name in ("text", "muted", "accent", "good", "warn", "bad"):
                ratio = contrast(tokens[name], tokens[ground])
                if ratio < TEXT_CONTRAST_MIN:
                    too_faint.append((theme, name, ground, round(ratio, 2)))

    assert too_faint == []


def test_both_ways_to_the_dark_theme_have_the_same_colours() -> None:
    text = (CONSOLE / "style/tokens.css").read_text()
    preferred = text.split(":root:not([data-theme=light])")[1].split("} }")[0]
    chosen = text.split(":root[data-theme=dark] {")[1].split("}")[0]

    assert re.findall(r"--[\w-]+: [^;]+", preferred) == re.findall(r"--[\w-]+: [^;]+", chosen)


def test_the_comparison_names_tests_that_exist() -> None:
    named = set(re.findall(r"`(test_\w+)`", (TESTS / "console" / "COMPARISON.md").read_text()))
    code = "".join(
        path.read_text(encoding="utf-8")
        for folder in ("console", "http")
        for path in (TESTS / folder).glob("test_*.py")
    )

    assert len(named) > 20
    assert sorted(named - set(re.findall(r"def (test_\w+)\(", code))) == []
