"""Values as columns: JSON, Avro, Protobuf, and the handling of malformed values."""
