"""Views: a client that knows nothing of them reads one, over long gaps and to the end.

A folder's test module subclasses `Views`, which makes pytest collect it there.
"""

from tests.interop.programs.process import Program, from_wire, plain

WHERE = "value contains 'ERROR'"
GAP = 3_000


class Views:
    def test_a_view_is_read_over_what_does_not_match(self, client: Program, topic: str) -> None:
        view = f"errors-of-{topic}"
        client.call("create_topic", topic=topic, partitions=1)
        settings = {"view.of": topic, "view.where": WHERE}
        client.call("create_topic", topic=view, partitions=1, settings=settings)
        for texts in (["ERROR 1", "ok"], *[["x" * 2_000] * 100] * (GAP // 100), ["ERROR 2", "ok"]):
            client.call("produce", topic=topic, records=plain(texts))

        answer = client.call("read", topic=view, count=2)

        assert [record.value for record in from_wire(answer)] == [b"ERROR 1", b"ERROR 2"]
        assert [row["offset"] for row in answer] == [0, GAP + 2]
        assert client.call("offsets", topic=view) == [0, GAP + 4]
