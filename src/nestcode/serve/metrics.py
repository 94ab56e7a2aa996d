"""The counters that Prometheus reads at /metrics."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

TIMES = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)  # seconds
SIZES = (1, 2, 4, 8, 16, 32, 64)
PARTS = {  # what a scrape reads of each part of a cluster
    "ready": "Replicas that answer.",
    "requests": "Requests to replicas.",
    "retries": "Requests that went to another replica after an error.",
    "hedges": "Requests that went to another replica as the first was slow.",
    "deaths": "Actors that died.",
    "failures": "Requests that no replica answered.",
}


class Parts:
    """Counters of the parts of a cluster, which begin anew with each generation."""

    def __init__(self, parts: Sequence[dict[str, Any]]) -> None:
        self._parts = parts

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics of all parts."""
        for name, about in PARTS.items():
            kind = GaugeMetricFamily if name == "ready" else CounterMetricFamily
            family = kind(f"nestcode_part_{name}", about, labels=["part"])
            for part in self._parts:
                family.add_metric([Path(part["path"]).name], part[name])
            yield family


class Metrics:
    """Counters of one server.

    >>> metrics = Metrics()
    >>> metrics.requests.labels("/v1/search", "200").inc()
    >>> b'nestcode_requests_total{route="/v1/search",status="200"} 1.0' in metrics.text()
    True
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter("nestcode_requests", "Requests.", ["route", "status"], registry=self._registry)
        self.seconds = Histogram(
            "nestcode_request_seconds", "Time to the first byte of an answer.", ["route"],
            buckets=TIMES, registry=self._registry,
        )  # fmt: skip
        self.active = Gauge("nestcode_active_requests", "Requests in progress.", registry=self._registry)
        self.batches = Histogram(
            "nestcode_batch_queries", "Queries of a batch.", buckets=SIZES, registry=self._registry
        )
        self.items = Gauge("nestcode_items", "Items in the index.", registry=self._registry)
        self.refreshes = Counter(
            "nestcode_refreshes", "Looks for a new commit that found one, or failed.", ["result"],
            registry=self._registry,
        )  # fmt: skip

    def text(self, parts: Sequence[dict[str, Any]] = ()) -> bytes:
        """Return all counters in the text format, those of the parts of a cluster too."""
        return generate_latest(self._registry) + (generate_latest(Parts(parts)) if parts else b"")
