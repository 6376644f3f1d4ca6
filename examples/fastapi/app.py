"""An HTTP service in front of a topic.

pip install fastapi uvicorn
millstream serve --data-dir data
uvicorn app:app --port 8000
curl -X POST localhost:8000/orders -H 'content-type: application/json' -d '{"item": "rye", "kg": 5}'
curl localhost:8000/totals
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI
from pydantic import BaseModel

from millstream.client import AsyncClient, aconnect

TOPIC = "orders"


class Order(BaseModel):
    item: str
    kg: float


async def add_up(client: AsyncClient, totals: Counter[str]) -> None:
    """Read the topic in a group; a record is committed when the next one is asked for."""
    async with client.consumer(TOPIC, group="totals") as consumer:
        async for message in consumer:
            totals[message.value["item"]] += message.value["kg"]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with aconnect() as client:
        client.set_serde("json")
        app.state.client = client
        app.state.totals = Counter()
        reader = asyncio.create_task(add_up(client, app.state.totals))
        yield
        reader.cancel()
        with suppress(asyncio.CancelledError):
            await reader


app = FastAPI(lifespan=lifespan)


@app.post("/orders")
async def place(order: Order) -> dict[str, int]:
    """Answered once the order is on stable storage."""
    placed = await app.state.client.produce(TOPIC, order.model_dump(), key=order.item)
    return {"partition": placed.partition, "offset": placed.offset}


@app.get("/totals")
async def totals() -> dict[str, float]:
    return dict(app.state.totals)
