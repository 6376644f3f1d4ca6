"""The pure parts of the Spark source, and its client against a broker that is made up here."""
