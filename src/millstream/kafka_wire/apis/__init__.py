"""The tables of Kafka's APIs, one class per message with its versions in the annotations.

`table` lists the APIs; the other modules describe their messages, by area. The names are those of
Kafka's own message definitions, in snake case.
"""
