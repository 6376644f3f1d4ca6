"""The services of a broker, without a protocol. The gate admits or denies every call."""
