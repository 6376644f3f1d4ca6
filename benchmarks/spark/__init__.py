"""The Spark source and sink beside Spark's own Kafka connector, on the same broker, in one session.

`python -m benchmarks.spark` measures; `--help` names what can be chosen. `install` fetches the
connector, `connectors` says how the two differ, `trials` measures one thing once, `run` says what
is measured in which order, `tables` prints it.
"""
