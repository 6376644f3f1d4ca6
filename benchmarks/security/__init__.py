"""What TLS, logins, rights and encryption at rest cost, beside Apache Kafka's own.

python -m benchmarks.security [--no-kafka] [--cells PATTERN]
"""
