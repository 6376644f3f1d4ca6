"""Kafka's protocol: gateway, router and handlers.

Bytes are decoded and encoded by `millstream.kafka_wire`.
"""
