"""A blocking client of Kafka's protocol: connections with TLS and SASL, leaders, coordinators.

It speaks the tables of `kafka_wire` with any cluster. The client library uses it for requests that
librdkafka does not offer, the Spark source for everything. Blocking, because a Spark task and an
administrative call have nothing else to do.
"""
