"""The way of an incoming batch: its queue options, message ids, delays and transactions."""
