"""Cost as the broker grows: partitions, connections, members, bytes, delayed records, transactions.

Each series measures the same few figures at growing sizes, beside Apache Kafka where it can be had.
`series` measures, `load` puts the load on, `curves` draws, `tables` writes.
"""
