"""The client's use of librdkafka. Not part of the public API."""
