"""Kafka's wire protocol as typed tables: requests, replies, headers, frames, error codes. Pure."""
