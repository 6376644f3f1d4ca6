"""Java is found where it is, and its absence is one sentence."""

from pathlib import Path

import pytest

from millstream.spark.errors import JavaMissing
from millstream.spark.session import java_home, shadow_home


def fake_java(home: Path, says: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n", encoding="utf-8")
    java.chmod(0o755)
    return java


def test_java_on_the_path_will_do(tmp_path: Path) -> None:
    java = fake_java(tmp_path, 'openjdk version "17.0.15" 2025-04-15')

    assert java_home({"PATH": str(java.parent)}, tmp_path) is None


def test_a_java_home_goes_before_the_path(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", 'java version "1.8.0_301"')
    fake_java(tmp_path / "new", 'openjdk version "21" 2023-09-19')

    home = java_home({"PATH": str(old.parent), "JAVA_HOME": str(tmp_path / "new")}, tmp_path)

    assert home is None


@pytest.mark.parametrize(
    ("says", "sentence"),
    [('java version "1.8.0_301"', "is Java 1"), ('openjdk version "11.0.2"', "is Java 11")],
)
def test_an_old_java_is_named(tmp_path: Path, says: str, sentence: str) -> None:
    java = fake_java(tmp_path, says)

    with pytest.raises(JavaMissing, match=f"{sentence}. Spark needs Java 17 or newer"):
        java_home({"PATH": str(java.parent)}, tmp_path)


def test_a_java_home_without_java_is_named(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match=f"JAVA_HOME is {tmp_path}, and it does not run"):
        java_home({"JAVA_HOME": str(tmp_path)}, tmp_path)


def test_no_java_at_all_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(JavaMissing, match=r"pip install 'millstream\[java\]'"):
        java_home({"PATH": str(tmp_path)}, tmp_path)


def test_the_shadow_home_has_all_but_the_zip(tmp_path: Path) -> None:
    pyspark = tmp_path / "pyspark"
    (pyspark / "jars").mkdir(parents=True)
    (pyspark / "bin").mkdir()
    (pyspark / "python" / "lib").mkdir(parents=True)
    (pyspark / "python" / "lib" / "pyspark.zip").touch()

    home = shadow_home(pyspark, tmp_path / "scratch")

    assert shadow_home(pyspark, tmp_path / "scratch") == home
    assert sorted(path.name for path in home.iterdir()) == ["bin", "jars", "python"]
    assert list((home / "python" / "lib").iterdir()) == []
