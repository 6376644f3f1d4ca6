"""JSON Schema, drafts 4 to 2020-12: parsing, references, and which change breaks documents."""
