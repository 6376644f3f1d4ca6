"""The small YAML: what is understood, and that every mistake is named with its place."""

from pathlib import Path

import pytest

from millstream.spark.pipelines import project, runner
from millstream.spark.pipelines.failures import InvalidPipeline
from millstream.spark.pipelines.project import TEMPLATES, create
from millstream.spark.pipelines.spec import Spec, load

COPY = """
name: orders
flows:
  - name: copy
    source: {topic: orders}
    sink: {topic: copies, format: raw}
"""


def loaded(directory: Path, text: str) -> Spec:
    path = directory / "pipeline.yml"
    path.write_text(text, encoding="utf-8")
    return load(path)


def refusal(directory: Path, text: str) -> str:
    with pytest.raises(InvalidPipeline) as caught:
        loaded(directory, text)
    return str(caught.value)


def test_a_flow_needs_little(tmp_path: Path) -> None:
    spec = loaded(tmp_path, COPY)

    assert spec.bootstrap == "localhost:9092"
    (outline,) = runner.outline(spec)
    assert (outline.does, outline.reads, outline.writes) == ("copy", ["orders"], ["copies"])


def test_options_may_be_numbers_and_truths(tmp_path: Path) -> None:
    text = COPY.replace(
        "{topic: orders}", "{topic: orders, options: {minPartitions: 4, failOnDataLoss: false}}"
    )

    (flow,) = loaded(tmp_path, text).flows

    assert flow.source is not None
    options = flow.source.own_options()
    assert (options["minPartitions"], options["failOnDataLoss"]) == ("4", "false")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("source:", "sorce:", "flows[0]: there is no sorce here; did you mean source?"),
        ("{topic: orders}", "{topic: 5}", "flows[0].source.topic: Expected `str | null`"),
        ("{topic: orders}", "{}", "flows[0].source: a source has one of topic and topics"),
        ("name: orders", "name: o/x", "name is 'o/x', expected 1 to 100 of"),
        ("name: orders", "title: orders", "there is no title here"),
        ("format: raw", "format: xml", "flows[0].sink.format"),
        ("format: raw", "table: t", "flows[0].sink: a sink has one of topic and table"),
        (
            "{topic: copies, format: raw}",
            "{table: t, output_mode: update}",
            "output_mode is update, a table is only appended to",
        ),
        ("format: raw", "format: parquet", "format of a topic is parquet, expected one of json"),
        ("format: raw", "options: {acks: all}", "flows[0].sink: there is no option acks in the"),
        ("orders}", "orders, options: {startingOfsets: x}}", "did you mean startingOffsets?"),
        ("orders}", "orders, malformed: skip}", "malformed is skip, which means nothing without"),
        ("orders}", "orders, options: {onerror: dlq}}", "Use schema and malformed: dlq"),
        ("source: {topic: orders}", "sql: x", "flow copy has no source"),
        ("source: {topic: orders}", "use: dedup", "flow copy uses dedup, which knows its source"),
        ("    sink", "    with: {a: 1}\n    sink", "has with, which means nothing without use"),
        ("flows:", "flows: []\nothers:", "there is no others here"),
        ("flows:", "trigger_seconds: -1\nflows:", "trigger_seconds is -1"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in COPY

    sentence = refusal(tmp_path, COPY.replace(old, new, 1))

    assert sentence.startswith("pipeline.yml")
    assert said in sentence
    assert "\n" not in sentence


def test_two_flows_have_two_names(tmp_path: Path) -> None:
    flow = COPY[COPY.index("  - name") :]

    assert "two flows with the name copy" in refusal(tmp_path, COPY + flow)


def test_what_is_no_yaml_is_said_with_its_line(tmp_path: Path) -> None:
    sentence = refusal(tmp_path, "name: [orders\nflows: x")

    assert "is not YAML" in sentence
    assert "line 2" in sentence
    assert "\n" not in sentence


def test_an_empty_file_is_no_pipeline(tmp_path: Path) -> None:
    assert "Expected `object`, got `null`" in refusal(tmp_path, "")


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidPipeline, match="No such file"):
        load(tmp_path / "pipeline.yml")


def test_tests_may_lie_in_a_directory_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    example = "- {name: nothing, flow: copy, input: {orders: []}, expected: []}\n"
    (tmp_path / "tests" / "a.yml").write_text(example, encoding="utf-8")

    (test,) = loaded(tmp_path, COPY).tests

    assert test.name == "nothing"


def test_a_test_of_no_flow_is_refused(tmp_path: Path) -> None:
    tests = "tests:\n  - {name: t, flow: copi, input: {}, expected: []}\n"

    assert "test 't' is of flow 'copi', there are copy" in refusal(tmp_path, COPY + tests)


def test_a_ready_made_pipeline_is_found_by_name(tmp_path: Path) -> None:
    used = COPY.replace("    source: {topic: orders}\n    sink: {topic: copies, format: raw}\n", "")
    spec = loaded(tmp_path, used + "    use: validat\n")

    with pytest.raises(InvalidPipeline, match="no ready-made pipeline 'validat'; did you mean val"):
        runner.outline(spec)


def test_parameters_of_a_ready_made_pipeline_are_checked_with_their_place(tmp_path: Path) -> None:
    used = COPY.replace("    source: {topic: orders}\n    sink: {topic: copies, format: raw}\n", "")
    spec = loaded(tmp_path, used + "    use: validate\n    with: {topic: orders, scheme: a int}\n")

    with pytest.raises(InvalidPipeline, match=r"flow copy, with: there is no scheme here; did you"):
        runner.outline(spec)


@pytest.mark.parametrize("template", [name for name in TEMPLATES if name != "sdp"])
def test_every_template_is_a_pipeline(tmp_path: Path, template: str) -> None:
    (path,) = create(tmp_path / "orders", template)

    spec = load(path)

    assert spec.name == "orders"
    assert runner.outline(spec)


def test_every_file_of_a_template_is_written_and_none_is_forgotten(tmp_path: Path) -> None:
    templates = Path(project.__file__).parent / "templates"

    for template in TEMPLATES:
        directory = tmp_path / template
        create(directory, template)
        shipped = {path.relative_to(templates / template) for path in _files(templates / template)}
        assert {path.relative_to(directory) for path in _files(directory)} == shipped
        assert not any(
            word in path.read_text(encoding="utf-8")
            for path in _files(directory)
            for word in ("NAME", "DIRECTORY")
        )


def _files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.suffix in (".yml", ".py")]


def test_a_template_does_not_overwrite(tmp_path: Path) -> None:
    create(tmp_path / "orders", "sql")

    with pytest.raises(InvalidPipeline, match="is there already"):
        create(tmp_path / "orders", "sql")
