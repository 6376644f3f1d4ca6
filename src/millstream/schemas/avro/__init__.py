"""Avro: parsing, the text that Java prints, and Avro's rules of schema resolution."""
