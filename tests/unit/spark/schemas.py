"""Arrow schemas of rows, as Spark would make them."""

import pyarrow as pa

HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
ROW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.field("element", HEADER))),
    ]
)
