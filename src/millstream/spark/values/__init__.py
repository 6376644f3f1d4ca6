"""Values as columns: JSON, Avro, Protobuf, and what becomes of values that are malformed."""
