"""The rights that each Kafka API asks for, as data: the table of the documents and of the tests.

The engine asks; a test runs every API and holds what was asked against this table, so the two
cannot drift apart. `protocols.access_rules` has the abbreviations.
"""

from typing import Final

from millstream.protocols.access_rules import NOTHING, Rule, needs

RULES: Final[dict[int, Rule]] = {
    0: needs("W T", also=("W X",)),
    1: needs("R T", also=("De T",)),  # De: to name a topic by its id; R gives it.
    2: needs("De T"),
    3: needs("De T", also=("Cr T", "De C")),  # Cr: topics that are made; De: what may be done.
    8: needs("R G", "R T", also=("De T",)),
    9: needs("De G", "De T"),
    10: needs(also=("De G", "De X")),
    11: needs("R G"),
    12: needs("R G"),
    13: needs("R G"),
    14: needs("R G"),
    15: needs("De G"),
    16: needs(also=("De C", "De G")),
    17: NOTHING,
    18: NOTHING,
    19: needs("Cr T", also=("DC T", "A C", "R T")),  # A: an owner is named; R: the view's base.
    20: needs("Dl T", also=("De T",)),
    21: needs("Dl T"),
    22: needs(also=("W X", "IW C")),
    23: needs("De T"),
    24: needs(also=("W X", "W T", "CA C")),
    25: needs("W X", "R G"),
    26: needs("W X"),
    27: needs("CA C", also=("A C",)),  # Either.
    28: needs("W X", "R G", also=("R T",)),
    29: needs("De C"),
    30: needs("A C"),  # Or the owner of every topic named.
    31: needs("A C"),
    32: needs(also=("DC T", "DC G", "DC C")),
    33: needs(also=("AC T", "AC G", "AC C", "A C", "R T")),
    34: needs("A C", also=("De T",)),
    35: needs("De C", also=("De T",)),
    36: NOTHING,
    37: needs("A T"),
    42: needs("Dl G"),
    43: needs("A C", also=("De T",)),
    44: needs(also=("AC T", "AC G", "AC C", "A C", "R T")),
    45: needs("A C", also=("De T",)),
    46: needs("De C"),
    47: needs("Dl G", also=("R T",)),  # R: once the group is known to exist.
    48: needs("DC C"),
    49: needs("AC C"),
    50: needs("De C"),
    51: needs("A C"),
    55: needs("De C"),
    57: needs("A C"),
    60: needs(also=("De C",)),
    61: needs("R T"),
    65: needs("De X", also=("De T",)),
    66: needs(also=("De X",)),
    68: needs("R G", also=("De T",)),
    69: needs("De G", also=("De T",)),
    74: needs("DC C", also=("De T", "De G", "De C")),
    75: needs("De T"),
    10_000: needs("W X"),
    10_001: needs("W X"),
    10_002: needs("R T", also=("De T",)),
    10_003: needs("R T", also=("De T",)),
    10_004: needs("R T", also=("W T",)),
    10_005: needs("R T", also=("W T",)),
    10_006: needs("Dl T", also=("De T",)),
    10_007: needs(also=("De T",)),
    10_008: needs("De T"),
    10_009: needs("R T"),
    10_010: needs("Dl T"),
    10_011: needs(also=("De C",)),  # One's own record: nothing.
    10_012: needs("A C"),
    10_013: needs("De C"),
    10_014: needs("A C"),
    10_015: needs("R T"),  # Of `__audit`.
    10_016: needs(also=("De C",)),  # One's own rights: nothing.
    10_017: NOTHING,
    10_018: needs("De C"),
    10_019: needs("A C"),
    10_020: needs("De C"),
    10_021: needs("R T"),
    10_022: needs("W X"),
    10_030: needs("De C"),
    10_031: needs("A C"),
    10_032: needs("A C"),
    10_033: needs("A C"),
    10_040: needs("De C"),
    10_041: needs("A C"),
    10_042: NOTHING,  # The newcomer proves that it holds a token.
    10_043: needs("A C"),
}
