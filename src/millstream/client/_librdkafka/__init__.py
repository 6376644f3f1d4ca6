"""What the client needs from librdkafka. Not part of the public API."""
