"""HTTP/1.1 as bytes: requests from `httptools`, responses, Prometheus' text format. No engine."""
