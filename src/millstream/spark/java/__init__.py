"""The JVM that Spark runs on: finding one, and starting it faster."""
