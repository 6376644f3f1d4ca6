"""The terminal explorer behind `millstream explore`: a pure core, and a shell of Textual.

`decoding`, `search`, `paging`, `window` and `moves` decide and know no terminal; `reader` and
`calls` talk to the cluster, beside the interface; the rest is what is seen. The cluster is
reached by `millstream.client` and by nothing else, so it may be any that speaks Kafka's protocol.
"""
