"""Every metric, named in this file alone, in a registry of our own. Owns names, help and labels.

``docs/metrics.md`` is generated from here. A label's values come from a fixed set (``LABELS`` says which); never an id,
a name that a peer chose, or a text.
"""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics import MetricWrapperBase

REGISTRY: Final = CollectorRegistry()
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

LABELS: Final = {
    "state": "starting, ready, running, draining",
    "reason": "a name from the table that the counted module owns",
    "outcome": "done, not_started, unknown",
    "transport": "sse, websocket",
    "kind": "`named-value`, the name of a shape's rule (docs/redaction.md), or the label of a known secret's setting",
    "task": "the literal name that a supervised task was given in the source",
    "route": "the template of a route, such as `/v1/sessions/{sid}`",
    "status": "the HTTP status",
    "what": "requests, auth, sockets, streams, sessions, host, origin",
    "version": "the version of this build",
}
"""Where each label's values come from; a label that is not here may not be used (a test reads this)."""

FAST: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
CALL: Final = (0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
DEFINITIONS: Final[list[tuple[MetricWrapperBase, tuple[str, ...]]]] = []


def _gauge(name: str, text: str, *labels: str) -> Gauge:
    metric = Gauge(f"toolrelay_{name}", text, labels, registry=REGISTRY)
    DEFINITIONS.append((metric, labels))
    return metric


def _counter(name: str, text: str, *labels: str) -> Counter:
    metric = Counter(f"toolrelay_{name}", text, labels, registry=REGISTRY)
    DEFINITIONS.append((metric, labels))
    return metric


def _histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
    metric = Histogram(f"toolrelay_{name}", text, labels, registry=REGISTRY, buckets=buckets)
    DEFINITIONS.append((metric, labels))
    return metric


BUILD = _gauge("build_info", "1, with the version of this build.", "version")
READY = _gauge("ready", "1 while this node is ready.")

# Children.
CHILDREN = _gauge("children", "Children of this node.", "state")
CHILD_STARTS = _counter("child_starts", "Children that were started.")
CHILD_FAILURES = _counter("child_failures", "Children that did not start, or ended in a run.", "reason")
REGISTRY_REFUSALS = _counter("registry_refusals", "Registries that a child refused: a defect of our narrowing.")

# Calls.
CALLS_OPEN = _gauge("calls_open", "Calls that children of this node wait for.")
CALLS = _counter(
    "calls",
    "Calls of this node's children that a client answered or that failed, by what is known of the work.",
    "outcome",
    "reason",
)
CALL_SECONDS = _histogram("call_seconds", "From the child's frame to its answer, in seconds.", CALL)
ANSWERS_REFUSED = _counter("answers_refused", "Answers of clients that were not valid, by the error's code.", "reason")

# The bus.
BUS_SECONDS = _histogram("bus_seconds", "A small command's way to Redis and back, tried every few seconds.", FAST)
BUS_CONNECTED = _gauge("bus_connected", "1 while Redis answers.")
BUS_RECONNECTS = _counter("bus_reconnects", "Connections to Redis that were made again.")
BUS_ERRORS = _counter("bus_errors", "Connections to Redis that failed or were not made.", "reason")
BUS_REFUSALS = _counter("bus_refusals", "Commands that Redis refused for the state that it was in.", "reason")
GAPS_READ = _counter("gaps_read", "Times that a reader went to the log because a push was missing.")

# Clients.
READERS = _gauge("readers", "Streams that follow a log.", "transport")
READERS_DROPPED = _counter("readers_dropped", "Streams that were ended because they fell behind.", "transport")
SOCKETS = _gauge("sockets", "Open WebSockets.")
REQUESTS = _counter("requests", "HTTP requests.", "route", "status")
REQUEST_SECONDS = _histogram("request_seconds", "From a request to its answer's head, in seconds.", FAST, "route")
REFUSED = _counter(
    "refused", "What was refused: a limit was reached, a credential was wrong, or it was no HTTP.", "what"
)

# The process.
REDACTIONS = _counter("redactions", "Parts of texts that were removed.", "kind")
TASKS = _gauge("tasks", "Background tasks that run.")
LOG_LINES_LOST = _counter("log_lines_lost", "Log lines that could not be written.")
TASK_FAILURES = _counter("task_failures", "Background tasks that ended with an error and are not started again.")
TASK_RESTARTS = _counter("task_restarts", "Supervised tasks that were started again.", "task")


def count_redaction(kind: str) -> None:
    """One thing of this kind was removed."""
    REDACTIONS.labels(kind).inc()


def render() -> bytes:
    """The text exposition of every metric; ``CONTENT_TYPE`` goes with it."""
    return generate_latest(REGISTRY)


def exposed_name(metric: MetricWrapperBase) -> str:
    """The name as a scrape shows it."""
    description = next(iter(metric.describe()))
    return f"{description.name}_total" if description.type == "counter" else description.name


def markdown() -> str:
    """``docs/metrics.md``."""
    lines = [
        "# Metrics",
        "",
        "Generated by `make docs` from `gateway/observe/metrics.py`. Prometheus text at `/metrics`.",
        "",
        "| name | type | labels | what it counts |",
        "| --- | --- | --- | --- |",
    ]
    for metric, names in DEFINITIONS:
        description = next(iter(metric.describe()))
        labels = ", ".join(f"`{name}`" for name in names) or "-"
        lines.append(f"| `{exposed_name(metric)}` | {description.type} | {labels} | {description.documentation} |")
    used = sorted({name for _, names in DEFINITIONS for name in names})
    lines += ["", "## Labels", "", "| label | values |", "| --- | --- |"]
    lines += [f"| `{name}` | {LABELS[name]} |" for name in used]
    return "\n".join(lines) + "\n"
