"""A receiver of OTLP over HTTP on loopback, and exporters that keep their data in memory."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

REQUESTS = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
}


class Received:
    """The data that a receiver has got."""

    def __init__(self, url):
        self.url, self.requests = url, []

    def _of(self, kind, resources, scopes, members):
        for request in self.requests:
            if isinstance(request, kind):
                for resource in getattr(request, resources):
                    for scope in getattr(resource, scopes):
                        yield from getattr(scope, members)

    @property
    def spans(self):
        return list(self._of(ExportTraceServiceRequest, "resource_spans", "scope_spans", "spans"))

    @property
    def events(self):
        return list(self._of(ExportLogsServiceRequest, "resource_logs", "scope_logs", "log_records"))

    @property
    def metrics(self):
        return list(self._of(ExportMetricsServiceRequest, "resource_metrics", "scope_metrics", "metrics"))


@contextmanager
def receiver():
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            data = self.rfile.read(int(self.headers["Content-Length"]))
            received.requests.append(REQUESTS[self.path].FromString(data))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_words):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        received = Received(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield received
        finally:
            server.shutdown()
            thread.join()


def values(attributes):
    """Return attributes of a message as a dict."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


class Kept:
    """Providers whose spans, events and metrics are kept in memory."""

    def __init__(self):
        self._spans, self._events, self._reader = (
            InMemorySpanExporter(),
            InMemoryLogRecordExporter(),
            InMemoryMetricReader(),
        )
        self.tracer_provider, self.logger_provider = TracerProvider(), LoggerProvider()
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self.logger_provider.add_log_record_processor(SimpleLogRecordProcessor(self._events))
        self.providers = {
            "tracer_provider": self.tracer_provider,
            "logger_provider": self.logger_provider,
            "meter_provider": MeterProvider([self._reader]),
        }
        self.tracer = self.tracer_provider.get_tracer("test")

    @property
    def spans(self):
        return list(self._spans.get_finished_spans())

    def named(self, name):
        return [each for each in self.spans if each.name == name]

    @property
    def events(self):
        return [
            (each.log_record.event_name, dict(each.log_record.attributes)) for each in self._events.get_finished_logs()
        ]

    @property
    def records(self):
        return [each.log_record for each in self._events.get_finished_logs()]

    def event_named(self, name):
        return [attributes for found, attributes in self.events if found == name]

    @property
    def points(self):
        """The data points of metrics by name."""
        data = self._reader.get_metrics_data()
        found = [] if data is None else data.resource_metrics[0].scope_metrics[0].metrics
        return {each.name: list(each.data.data_points) for each in found}

    def everything(self):
        """Return all that was kept as one text."""
        about = [(each.name, dict(each.attributes), each.status.description, each.events) for each in self.spans]
        return repr((about, self.events, self.points))

    def encoded(self):
        """Return all that was kept as OTLP sends it."""
        logs, metrics = self._events.get_finished_logs(), self._reader.get_metrics_data()
        sent = [encode_spans(self.spans), encode_logs(logs)] + ([] if metrics is None else [encode_metrics(metrics)])
        return b"".join(each.SerializeToString() for each in sent)
