"""The terminal explorer behind `millstream explore`: a pure core, and a shell of Textual.

`core` decides and knows no terminal; `reader` and `calls` talk to the cluster, beside the
interface; `screens` has the screens and their widgets. The cluster is reached by
`millstream.client` and by nothing else, so it may be any that speaks Kafka's protocol.
"""
