"""A part of version 3 of Confluent's REST proxy, under `/v3` and `/kafka/v3`."""
