"""Our Kafka beside Apache Kafka and JetStream: one machine, one run, one durability at a time.

`python -m benchmarks.kafka` measures; `--help` names what can be chosen. Brokers and clients are
processes of their own (`peers`, `client_*`); `trials` measures one cell once, `cells` says which
cells there are, `comparison` turns rounds into medians and verdicts, `tables` prints them.
"""
