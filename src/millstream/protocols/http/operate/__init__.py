"""The node and its work under `/v1`: cluster, configuration, connections, figures, jobs."""
