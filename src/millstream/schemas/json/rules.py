"""Which difference between two JSON Schemas breaks documents, by the names that clients know.

A rule that passes under LENIENT only concerns open content models: documents may hold properties
that no schema names, and LENIENT takes the word of the author that none do.
"""

from millstream.schemas.definition import Difference

_BOUNDS = (
    "MAX_LENGTH",
    "MIN_LENGTH",
    "MAXIMUM",
    "MINIMUM",
    "EXCLUSIVE_MAXIMUM",
    "EXCLUSIVE_MINIMUM",
    "MAX_PROPERTIES",
    "MIN_PROPERTIES",
    "MAX_ITEMS",
    "MIN_ITEMS",
)

# A document that was valid stays valid. Every other rule breaks.
PASSES = frozenset(
    {
        *(f"{bound}_REMOVED" for bound in _BOUNDS),
        *(f"{bound}_INCREASED" for bound in _BOUNDS if "MAX" in bound),
        *(f"{bound}_DECREASED" for bound in _BOUNDS if "MIN" in bound),
        "SCHEMA_REMOVED",
        "TYPE_EXTENDED",
        "PATTERN_REMOVED",
        "MULTIPLE_OF_REDUCED",
        "MULTIPLE_OF_REMOVED",
        "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED",
        "REQUIRED_ATTRIBUTE_REMOVED",
        "DEPENDENCY_ARRAY_NARROWED",
        "DEPENDENCY_ARRAY_REMOVED",
        "DEPENDENCY_SCHEMA_REMOVED",
        "ADDITIONAL_PROPERTIES_ADDED",
        "ADDITIONAL_PROPERTIES_EXTENDED",
        "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL",
        "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "UNIQUE_ITEMS_REMOVED",
        "ADDITIONAL_ITEMS_ADDED",
        "ADDITIONAL_ITEMS_EXTENDED",
        "ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
        "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL",
        "ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL",
        "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "ENUM_ARRAY_EXTENDED",
        "COMBINED_TYPE_EXTENDED",
        "PRODUCT_TYPE_NARROWED",
        "SUM_TYPE_EXTENDED",
        "NOT_TYPE_NARROWED",
        "KEYWORD_REMOVED",
    }
)

PASSES_LENIENT = frozenset(
    {
        "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "ADDITIONAL_PROPERTIES_NARROWED",
        "ADDITIONAL_PROPERTIES_REMOVED",
    }
)

# What happened, by the last words of a rule's name; the first that fits.
_DESCRIPTIONS = {
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": (
        "The {reader} schema requires a property at path '%s' that documents of the {writer} "
        "schema need not have"
    ),
    "REQUIRED_ATTRIBUTE_ADDED": (
        "The {reader} schema requires a property at path '%s' that the {writer} schema does not"
    ),
    "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": (
        "The {writer} schema has an open content model and lacks the property at path '%s' of "
        "the {reader} schema: documents may hold another value there"
    ),
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": (
        "The {reader} schema has a closed content model and lacks a property at path '%s' that "
        "the {writer} schema has"
    ),
    "NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "A property or item at path '%s' is not covered by the partially open content model of "
        "the other schema"
    ),
    "_ADDED": "The {reader} schema adds a constraint at path '%s' that the {writer} schema lacks",
    "_NARROWED": "The {reader} schema is narrower at path '%s' than the {writer} schema",
    "_REMOVED": "The {reader} schema lacks at path '%s' what the {writer} schema allows",
    "_EXTENDED": "The {reader} schema is extended at path '%s' beyond the {writer} schema",
    "": "The {reader} schema differs at path '%s' from the {writer} schema",
}


def description(rule: str, path: str) -> str:
    template = next(text for end, text in _DESCRIPTIONS.items() if rule.endswith(end))
    # A path of the user's may hold a percent sign or braces.
    return template.replace("%s", path.replace("{", "(").replace("}", ")"))


def difference(rule: str, path: str) -> Difference:
    """A difference at `path`, with what the tables say of its rule."""
    return Difference(
        path=f"#{path}" if path else "#/",
        rule=rule,
        breaks=rule not in PASSES,
        description=description(rule, f"#{path}" if path else "#/"),
        passes_lenient=rule in PASSES_LENIENT,
    )
