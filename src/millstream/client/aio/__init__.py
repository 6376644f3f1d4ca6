"""The client for asyncio: the same names, awaited. `aconnect()` is its way in."""
