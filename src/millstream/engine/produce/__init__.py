"""Produce: a batch's queue options, message ids, delays and transactions, then the append."""
