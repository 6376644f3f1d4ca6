"""The queue protocols, with JetStream and core NATS beside them: one machine, one run.

`python -m benchmarks.protocols` measures; `--help` names what can be chosen. `wire` spells what
clients say and reads what they hear, `client` is the one client of all sides, `nats`, `kafka` and
`flymq` are what it takes of those, `trials` measures one cell once and proves it, `run` says which
cells there are, `tables` prints them.
"""
