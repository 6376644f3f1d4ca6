"""One module for each family of Kafka requests."""
