"""Topic settings: read from text, bounded, and refused by name."""

import pytest

from millstream.errors import InvalidSetting
from millstream.settings import (
    BOUNDS,
    CleanupPolicy,
    CompressionType,
    TimestampType,
    TopicSettings,
    with_overrides,
)


def test_text_values_become_typed_settings() -> None:
    settings = with_overrides(
        TopicSettings(),
        {
            "cleanup_policy": "delete, compact",
            "retention_ms": "-1",
            "compression_type": "zstd",
            "message_timestamp_type": "LogAppendTime",
            "min_cleanable_dirty_ratio": "0.1",
        },
    )

    assert settings.cleanup_policy is CleanupPolicy.COMPACT_AND_DELETE
    assert settings.cleanup_policy.compacts
    assert settings.cleanup_policy.deletes
    assert settings.retention_ms == -1
    assert settings.compression_type is CompressionType.ZSTD
    assert settings.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    assert settings.min_cleanable_dirty_ratio == 0.1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("colour", "red"),
        ("retention_ms", "soon"),
        ("retention_ms", "1.5"),
        ("segment_bytes", "3"),
        ("cleanup_policy", "burn"),
        ("min_cleanable_dirty_ratio", "2"),
        ("min_cleanable_dirty_ratio", "nan"),
    ],
)
def test_what_a_setting_cannot_take_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(InvalidSetting, match=name):
        with_overrides(TopicSettings(), {name: text})


def test_every_number_has_bounds() -> None:
    numbers = {
        name
        for name in TopicSettings.__slots__
        if isinstance(value := getattr(TopicSettings(), name), int | float)
        and not isinstance(value, bool)
    }

    assert numbers == set(BOUNDS)
