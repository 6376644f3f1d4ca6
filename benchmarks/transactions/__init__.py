"""Short transactions, one after the other, beside Apache Kafka."""
