"""How a comparison is printed and kept: tables per durability, every raw value as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import confluent_kafka

from benchmarks.kafka.cells import LATENCY_RATE, START_DURABILITY, Plan, Run
from benchmarks.kafka.client_librdkafka import CHUNK, CONSUMER, PRODUCER
from benchmarks.kafka.comparison import (
    COMPILED_PRODUCE_1_KIB_GOAL,
    FIRST_ACK_SECONDS_GOAL,
    IDLE_RSS_MB_GOAL,
    RATIO_GOAL,
    Samples,
    at_least,
    below,
)
from benchmarks.kafka.peers import KAFKA, MILLSTREAM, Durability, Peer
from benchmarks.report import keep, machine, number, table, verdict

LATENCIES = {"ack": "produce to ack", "end_to_end": "produce to consumer"}
RATES = {
    "produce": "produce",
    "consume": "consume",
    "produce, compiled client": "compiled_produce",
    "consume, compiled client": "compiled_consume",
    "kafka-producer-perf-test": "perf_test",
}
PERCENTILES = ("p50", "p99", "p99.9")


def publish(
    run: Run,
    durabilities: Sequence[Durability],
    *,
    command: str,
    part: str,
    circumstances: Mapping[str, str],
) -> None:
    """Print the tables and write them to `benchmarks/results/<part>.{md,json}`."""
    facts = machine() | circumstances  # type: ignore[operator]
    text = render(run, durabilities, command=command, facts=facts)
    content = {
        "command": command,
        "machine": facts,
        "versions": {peer.name: peer.version for peer in run.peers},
        "plan": asdict(run.plan),
        "failures": run.failures,
        "samples": [asdict(sample) for sample in run.samples.all],
    }
    keep(part, text, content)


def render(
    run: Run, durabilities: Sequence[Durability], *, command: str, facts: Mapping[str, str]
) -> str:
    samples, peers = run.samples, run.peers
    lines = ["# kafka", "", f"`{command}`", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += _settings(run.plan, peers)
    if run.failures:
        lines += ["", "## Trials that failed, and gave no figure", ""]
        lines += [f"- {failure}" for failure in run.failures]
    if run.notes:
        lines += ["", "## Not measured", ""]
        lines += [f"- {note}" for note in run.notes]
    lines += ["", f"## Start and memory ({START_DURABILITY})", ""]
    lines += _start_table(samples, peers)
    for durability in durabilities:
        lines += ["", f"## Durability: {durability}", ""]
        lines += [f"- {peer.name}: {peer.durability[durability]}" for peer in peers]
        lines += ["", f"### Throughput ({durability})", ""]
        lines += _throughput_table(samples, peers, durability)
        lines += ["", f"### Latency at {LATENCY_RATE:,} records/s ({durability}), ms", ""]
        lines += _latency_table(samples, peers, durability)
        lines += ["", f"### Event loop of {MILLSTREAM} in these runs ({durability})", ""]
        lines += _stalls_table(samples, durability)
        lines += ["", f"### Memory ({durability})", ""]
        lines += _memory_table(samples, peers, durability)
    return "\n".join(lines) + "\n"


def _settings(plan: Plan, peers: Sequence[Peer]) -> list[str]:
    library = confluent_kafka.libversion()[0]
    client = ", ".join(f"{key}={value}" for key, value in (PRODUCER | CONSUMER).items())
    lines = [f"- {peer.name}: {peer.version}" for peer in peers]
    counts = ", ".join(f"{count:,} of {size} B" for size, count in plan.counts.items())
    lines.append(
        f"- client: confluent-kafka {confluent_kafka.version()} (librdkafka {library}), {client}, "
        f"the rest at its defaults; values are handed over {CHUNK:,} at a time; the client runs "
        "on the same cores as the broker"
    )
    lines.append(
        f"- rounds: {plan.rounds}, in turns broker by broker; figures are medians, ratios are "
        "medians of the rounds' ratios"
    )
    lines.append(
        f"- throughput: {counts} a run; unless every record was read back exactly once there is "
        f"no figure; JetStream 1/{plan.jetstream_divisor} as many; where the client was busy all "
        "the time (1.00) it bounds the rate, not the broker"
    )
    counts = ", ".join(f"{count:,} of {size} B" for size, count in plan.compiled_counts.items())
    lines.append(
        f"- compiled client: librdkafka's rdkafka_performance, the same settings, {counts} a run; "
        "it counts the records, and the topic must hold as many"
    )
    lines.append(
        f"- kafka-producer-perf-test: Java's defaults, 1/{plan.perf_test_divisor} as many records "
        "after as many again to warm up"
    )
    lines.append(
        f"- latency: counted from when a record was due, {plan.latency_measured_s:g} s a run "
        f"after {plan.latency_warm_s:g} s of warming up"
    )
    return lines


def _throughput_table(samples: Samples, peers: Sequence[Peer], durability: str) -> list[str]:
    shares = ("cpu_us", "client_cpu_us", "client_busy")
    rivals = [peer.name for peer in peers]
    rows = []
    for title, action in RATES.items():
        for setting in samples.settings(durability, f"{action}_per_s"):
            medians = {
                (peer, measure): number(
                    samples.median(peer, durability, setting, f"{action}_{measure}")
                )
                for peer in rivals
                for measure in ("per_s", *shares)
            }
            rates = [medians[peer, "per_s"] for peer in rivals]
            ratio = samples.ratio(MILLSTREAM, KAFKA, durability, setting, f"{action}_per_s")
            why = [" / ".join(medians[peer, measure] for peer in rivals) for measure in shares]
            goal = verdict(at_least(ratio, _factor(action, setting)))
            rows.append([title, setting, *rates, number(ratio), goal, *why])
    heads = ["", "records", *(f"{name}, records/s" for name in rivals), "ratio to Kafka", "goal"]
    seconds = "CPU seconds a million records"
    return table([*heads, f"broker, {seconds}", f"client, {seconds}", "client busy"], rows)


def _factor(action: str, setting: str) -> float:
    is_larger = action == "compiled_produce" and setting.startswith("1024 B")
    return COMPILED_PRODUCE_1_KIB_GOAL if is_larger else RATIO_GOAL


def _stalls_table(samples: Samples, durability: str) -> list[str]:
    """How often the event loop of Millstream was held up while latency was measured."""
    rows = [
        [setting, number(sum(samples.rounds(MILLSTREAM, durability, setting, "stalls").values()))]
        for setting in samples.settings(durability, "stalls")
    ]
    return table(["records", "turns of over 5 ms, all rounds"], rows)


def _latency_table(samples: Samples, peers: Sequence[Peer], durability: str) -> list[str]:
    rivals = [peer.name for peer in peers]
    rows = []
    for kind, title in LATENCIES.items():
        for setting in samples.settings(durability, f"{kind}_p50_ms"):
            medians = {
                (peer, share): samples.median(peer, durability, setting, f"{kind}_{share}_ms")
                for peer in rivals
                for share in PERCENTILES
            }
            goals = [
                below(medians[MILLSTREAM, share], medians.get((KAFKA, share)), f"{share} < Kafka")
                for share in ("p50", "p99")
            ]
            figures = [
                " / ".join(number(medians[peer, share]) for share in PERCENTILES) for peer in rivals
            ]
            verdicts = "; ".join(verdict(goal) for goal in goals if goal)
            rows.append([title, setting, *figures, verdicts])
    heads = ["", "records", *(f"{name}, {' / '.join(PERCENTILES)}" for name in rivals), "goals"]
    return table(heads, rows)


def _start_table(samples: Samples, peers: Sequence[Peer]) -> list[str]:
    rivals = [peer.name for peer in peers]
    rows = []
    for title, name, goal, unit in (
        (
            "process start to first ack, topic created on the way",
            "first_ack_s",
            FIRST_ACK_SECONDS_GOAL,
            "s",
        ),
        ("memory (RSS), idle after that ack", "idle_rss_mb", IDLE_RSS_MB_GOAL, "MB"),
    ):
        values = [samples.median(peer, START_DURABILITY, "", name) for peer in rivals]
        judged = verdict(below(values[rivals.index(MILLSTREAM)], goal, f"< {goal:g} {unit}"))
        rows.append([title, *(f"{number(value)} {unit}" for value in values), judged])
    return table(["", *rivals, "goal"], rows)


def _memory_table(samples: Samples, peers: Sequence[Peer], durability: str) -> list[str]:
    rivals = [peer.name for peer in peers]
    load = [samples.median(peer, durability, "", "load_rss_mb") for peer in rivals]
    rows = [["highest RSS under the throughput runs", *(f"{number(mb)} MB" for mb in load)]]
    for setting in samples.settings(durability, "connections_rss_mb"):
        grown = [samples.median(p, durability, setting, "connections_rss_mb") for p in rivals]
        title = setting.rpartition(", ")[2]
        rows.append([f"RSS grown by {title}", *(f"{number(mb)} MB" for mb in grown)])
    return table(["", *rivals], rows)
