"""What a number of a message means when its topic is another one by now."""

from tests.support.deliveries import make_topic, pause
from tests.support.flux import FluxTalk
from tests.support.nodes import SESSION, running_node
from tests.support.virtual_loop import run


def test_an_acknowledgement_is_of_the_topic_that_was_not_of_its_namesake() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            talk = FluxTalk(node)
            await talk.say(b"SUB orders DURABLE:w s1")
            await talk.say(b"PUB orders 1", b"a", b"PUB orders 1", b"b")
            first, second = await talk.hear(2)
            await talk.say(b"ACK %d s1" % first.sequence)
            await node.topics.delete(SESSION, "orders")
            await pause()
            await make_topic(node)
            await talk.say(b"PUB orders 1", b"c", b"PUB orders 1", b"d")
            await talk.hear(2)

            for word in (b"ACK", b"NACK", b"REJECT"):
                await talk.say(b"%s %d s1" % (word, second.sequence))
            await pause()

            name = "flux:durable:orders:w"
            view = await node.deliveries.describe(SESSION, name)
            assert [cursor.unsettled for cursor in view.cursors.values()] == [2]
            assert talk.heard == b""

    run(story())
