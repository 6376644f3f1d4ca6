"""What a person who helps needs to see of a node, without its records and secrets."""
