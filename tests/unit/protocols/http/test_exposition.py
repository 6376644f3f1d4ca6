"""The text format of Prometheus."""

from millstream.metrics import CONNECTIONS, GROUP_LAG, Sample
from millstream.protocols.http.wire.responses import metric_lines


def test_samples_stand_below_their_metric_and_labels_are_escaped() -> None:
    samples = [
        Sample(CONNECTIONS, (), 2),
        Sample(GROUP_LAG, ('a "b"\\\n', "orders"), 1e15),
        Sample(GROUP_LAG, ("c", "orders"), 0.5),
    ]

    assert "".join(metric_lines(iter(samples))) == (
        f"# HELP millstream_connections {CONNECTIONS.help}\n"
        "# TYPE millstream_connections gauge\n"
        "millstream_connections 2\n"
        f"# HELP millstream_group_lag {GROUP_LAG.help}\n"
        "# TYPE millstream_group_lag gauge\n"
        'millstream_group_lag{group="a \\"b\\"\\\\\\n",topic="orders"} 1000000000000000\n'
        'millstream_group_lag{group="c",topic="orders"} 0.5\n'
    )
