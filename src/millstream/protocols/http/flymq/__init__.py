"""FlyMQ's admin REST, `/api/v1`, in FlyMQ's shapes, for its tools."""
