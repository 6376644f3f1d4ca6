"""The REST interface of the schema registry, as Confluent's clients know it."""
