"""Debian's Prometheus and promtool against a broker's metrics, rules and dashboards."""
