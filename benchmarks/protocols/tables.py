"""Prints and keeps the figures of the protocols: a table for each question, raw values as JSON."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from statistics import median

from benchmarks.kafka.comparison import Goal, Samples, at_least, below
from benchmarks.kafka.install import NATS_SERVER_VERSION
from benchmarks.kafka.peers import DURABILITIES, JETSTREAM, MILLSTREAM
from benchmarks.protocols.run import (
    AWAITED,
    CORE_NATS,
    DEFAULT_DURABILITY,
    DEFERRED,
    DELAYS,
    DISK,
    FAN_OUT,
    FILTERED_BYTES,
    FILTERS,
    ONE_BY_ONE,
    PINNED,
    PUBLISHING,
    SIZES,
    WAITING,
    WITH_ACKS,
    WITHOUT_ACKS,
    Plan,
    Run,
)
from benchmarks.protocols.trials import SAMPLES, WINDOW
from benchmarks.report import keep, machine, number, table, verdict
from millstream import __version__

RIVAL_GOAL = 1.0
PINNED_GOAL = 300_000
ONE_BY_ONE_GOAL = 10_000
JITTER_MS_GOAL = 50
WHY = ("cpu_us", "client_busy")
WHY_HEADS = ["broker CPU, µs each", "client busy"]


def publish(run: Run, *, command: str, part: str, circumstances: Mapping[str, str]) -> None:
    """Print the tables and write them to `benchmarks/results/<part>.{md,json}`."""
    facts = machine() | dict(circumstances)
    content = {
        "command": command,
        "machine": facts,
        "versions": {MILLSTREAM: __version__, JETSTREAM: NATS_SERVER_VERSION},
        "plan": asdict(run.plan),
        "failures": run.failures,
        "samples": [asdict(sample) for sample in run.samples.all],
    }
    keep(part, render(run, command=command, facts=facts), content)


def render(run: Run, *, command: str, facts: Mapping[str, str]) -> str:
    lines = ["# protocols", "", f"`{command}`", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += _settings(run.plan)
    if run.failures:
        lines += ["", "## Trials that failed, and gave no figure", ""]
        lines += [f"- {failure}" for failure in run.failures]
    stored, filtered = DEFAULT_DURABILITY, f"{run.plan.filtered_count:,} records"
    for part, title, rows in (
        (PUBLISHING, "Publishing: pipelined, acknowledged, stored", _publishing(run.samples)),
        (WAITING, "Publishing: one client that waits for every answer", _one_by_one(run.samples)),
        (FAN_OUT, f"Fan-out, Millstream stored as well ({stored})", _fan_out(run.samples)),
        (DELAYS, "Delayed records", _deferred(run)),
        (FILTERS, f"Filtered reading, {filtered}", _filtered(run.samples)),
    ):
        if part in run.plan.parts:
            lines += ["", f"## {title}", "", *rows]
    return "\n".join(lines) + "\n"


def _settings(plan: Plan) -> list[str]:
    cells = {
        f"Millstream {__version__}": "sync: +OK after an fdatasync that many records share; "
        "write: after the write, synced every 500 ms in the background",
        f"JetStream, nats-server {NATS_SERVER_VERSION}": "streams in files; sync: "
        "sync_interval=always, an fsync for each record; write: its default, synced every 2 "
        "minutes. core NATS: the same process without a stream, nothing is stored or acknowledged",
        "client": "one for all sides, on raw sockets in one thread; publications are spelled "
        f"beforehand and sent while fewer than {WINDOW:,} are unanswered (core NATS: as fast as it "
        "takes them); answers are counted: +OK of Flux, the PubAck in a reply inbox for each PUB "
        "of JetStream. It shares the broker's cores, but for the rows with one core",
        "rounds": f"{plan.rounds}, in turns side by side; figures are medians, ratios are medians "
        "of the rounds' ratios; filtered reading once; of delayed records the first and the last "
        "to come are those of all rounds",
        "publishing": f"{plan.publish_count:,} records a run, JetStream with sync "
        f"{plan.jetstream_sync_count:,}; to one partition; unless the topic or stream ends where "
        f"it should and {SAMPLES} records are read back there is no figure. Under one subject all "
        "lines of a run are the same, which is Flux's cheapest case; under ten no two neighbours "
        "are",
        "one that waits": f"{plan.one_by_one_count:,} requests a run, FlyMQ's PRODUCE and "
        "JetStream's PUB with a reply inbox; the offset in each answer is checked. disk alone: "
        "write and fdatasync, again and again; no client that waits gets more than that with sync, "
        "but other load on the disk at that moment shows in it too",
        "fan-out": f"{plan.deliveries:,} deliveries a run, core NATS {plan.core_nats_factor} times "
        "as many; from the first PUB to the last delivery (and ACK), a connection for each "
        "subscriber; unless each heard every record once there is no figure; no ACK: "
        "flux.ack_timeout_ms = 0",
        "filtered reading": "`value contains` in a view, a text in FETCH; unless all that match "
        "and no others are read there is no figure",
    }
    return [f"- {name}: {text}" for name, text in cells.items()]


def _publishing(samples: Samples) -> list[str]:
    rows = []
    for durability in DURABILITIES:
        for setting in _settings_of(samples, durability, "publish "):
            ratio = samples.ratio(MILLSTREAM, JETSTREAM, durability, setting, "per_s")
            goals = [at_least(ratio, RIVAL_GOAL)]
            if setting in {f"publish {cell}" for cell in PINNED}:
                ours = samples.median(MILLSTREAM, durability, setting, "per_s")
                goals.append(_at_least(ours, PINNED_GOAL))
            rows.append(_row(samples, [MILLSTREAM, JETSTREAM], durability, setting, ratio, goals))
    return table(_heads([MILLSTREAM, JETSTREAM], "records/s", "JetStream"), rows)


def _one_by_one(samples: Samples) -> list[str]:
    sides = [MILLSTREAM, JETSTREAM, DISK]
    rows = []
    for durability in DURABILITIES:
        for setting in _settings_of(samples, durability, AWAITED):
            ratio = samples.ratio(MILLSTREAM, JETSTREAM, durability, setting, "per_s")
            ours = samples.median(MILLSTREAM, durability, setting, "per_s")
            goals = [_at_least(ours, ONE_BY_ONE_GOAL)]
            row = _row(samples, sides, durability, setting, ratio, goals)
            row[1] = f"{ONE_BY_ONE.size} B"
            rows.append(row)
    named = ["Millstream, FlyMQ", JETSTREAM, DISK]
    return table(_heads(named, "requests/s", "JetStream"), rows)


def _fan_out(samples: Samples) -> list[str]:
    sides = [WITH_ACKS, WITHOUT_ACKS, CORE_NATS]
    rows = []
    for setting in _settings_of(samples, DEFAULT_DURABILITY, "fan out "):
        ratio = samples.ratio(WITHOUT_ACKS, CORE_NATS, DEFAULT_DURABILITY, setting, "per_s")
        rows.append(_row(samples, sides, DEFAULT_DURABILITY, setting, ratio, []))
    return table(_heads(sides, "deliveries/s", "core NATS, no ACK"), rows)


def _deferred(run: Run) -> list[str]:
    plan = run.plan
    subject = (
        f"{plan.deferred_count:,} of {SIZES[-1]} B pending, due over {plan.deferred_spread_s:g} s "
        f"({plan.deferred_count / plan.deferred_spread_s:,.0f}/s)"
    )
    rows = []
    for durability in DURABILITIES:
        figures = {
            name: _over_rounds(run.samples, durability, name, take)
            for name, take in (
                ("min_ms", min),
                ("p50_ms", median),
                ("p99_ms", median),
                ("max_ms", max),
                ("per_s", median),
            )
        }
        *times, taken_in = map(number, figures.values())
        early, p99 = figures["min_ms"], figures["p99_ms"]
        goals = [
            below(p99, JITTER_MS_GOAL, f"p99 < {JITTER_MS_GOAL} ms"),
            None if early is None else Goal(text="never early", is_met=early >= 0),
        ]
        rows.append([durability, subject, " / ".join(times), taken_in, _verdicts(goals)])
    late = "arrival after due, ms: min / p50 / p99 / max"
    return table(["durability", "records", late, "taken in, records/s", "goals"], rows)


def _over_rounds(
    samples: Samples, durability: str, name: str, take: Callable[[Iterable[float]], float]
) -> float | None:
    values = samples.rounds(MILLSTREAM, durability, DEFERRED, f"deferred_{name}").values()
    return take(values) if values else None


def _filtered(samples: Samples) -> list[str]:
    rows = []
    for setting in _settings_of(samples, DEFAULT_DURABILITY, "read "):
        why = [_median(samples, [MILLSTREAM], DEFAULT_DURABILITY, setting, name) for name in WHY]
        rate = samples.median(MILLSTREAM, DEFAULT_DURABILITY, setting, "per_s")
        rows.append([setting.removeprefix("read "), f"{FILTERED_BYTES} B", number(rate), *why])
    return table(["", "records", "records looked at/s", *WHY_HEADS], rows)


def _row(
    samples: Samples,
    sides: Sequence[str],
    durability: str,
    setting: str,
    ratio: float | None,
    goals: Sequence[Goal | None],
) -> list[str]:
    rates = [number(samples.median(side, durability, setting, "per_s")) for side in sides]
    why = [_median(samples, sides, durability, setting, name) for name in WHY]
    subject = setting.removeprefix("publish ").removeprefix("fan out ")
    return [durability, subject, *rates, number(ratio), _verdicts(goals), *why]


def _heads(sides: Sequence[str], unit: str, rival: str) -> list[str]:
    rates = [f"{side}, {unit}" for side in sides]
    return ["durability", "records", *rates, f"ratio to {rival}", "goals", *WHY_HEADS]


def _median(
    samples: Samples, sides: Sequence[str], durability: str, setting: str, name: str
) -> str:
    return " / ".join(number(samples.median(side, durability, setting, name)) for side in sides)


def _verdicts(goals: Sequence[Goal | None]) -> str:
    return "; ".join(verdict(goal) for goal in goals if goal is not None)


def _at_least(value: float | None, least: int) -> Goal | None:
    return None if value is None else Goal(text=f">= {least:,}/s", is_met=value >= least)


def _settings_of(samples: Samples, durability: str, start: str) -> list[str]:
    names = dict.fromkeys(
        sample.setting for sample in samples.all if sample.durability == durability
    )
    return [setting for setting in names if setting.startswith(start)]
