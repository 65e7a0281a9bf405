#!/usr/bin/env bash
# OpenTelemetry: one lone surrogate in the status of a span loses every span of its batch.
#
# Versions: opentelemetry-sdk 1.45.2, opentelemetry-exporter-otlp-proto-http 1.45.2, Python 3.11.
#
# Python gives names of files that are not UTF-8 as texts with lone surrogates (os.listdir). A
# program names such a file in an exception, inside a span. By default the SDK takes the text of
# the exception as the description of the span's status. Three other spans end before it, and all
# four wait in a BatchSpanProcessor. Then the batch is exported over OTLP.
#
# We expected the receiver to get four spans, one of them with a mangled or missing description:
# an attribute that cannot be encoded is logged and left out, and the rest of its span is sent.
# The receiver gets nothing. The description and the name of a span are encoded without that care,
# the encoder raises UnicodeEncodeError, and the processor logs it and drops the whole batch, which
# has up to 512 spans by default. An attribute with the same text loses that attribute alone.
#
# Output seen:
#   in an attribute, received: ['good 0', 'good 1', 'good 2', 'bad']
#   in an exception, received: []
#   in a name, received: []
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q opentelemetry-sdk==1.45.2 opentelemetry-exporter-otlp-proto-http==1.45.2
cat > "$folder/probe.py" <<'PY'
import logging
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

received = []


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        request = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
        received.extend(
            span.name for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans
        )
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_words):
        pass


server = HTTPServer(("127.0.0.1", 0), Receiver)
threading.Thread(target=server.serve_forever, daemon=True).start()
provider = TracerProvider()
exporter = OTLPSpanExporter(f"http://127.0.0.1:{server.server_port}/v1/traces")
provider.add_span_processor(BatchSpanProcessor(exporter))
tracer = provider.get_tracer("probe")
logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it logs a traceback

folder = sys.argv[1]
open(os.path.join(os.fsencode(folder), b"report-\xff.txt"), "w").close()
[name] = [each for each in os.listdir(folder) if each.startswith("report")]


def in_an_attribute():
    with tracer.start_as_current_span("bad", attributes={"file": name}):
        pass


def in_an_exception():
    with tracer.start_as_current_span("bad"):
        raise ValueError(f"{name} has no header")


def in_a_name():
    with tracer.start_as_current_span(f"read {name}"):
        pass


found = []
for make in (in_an_attribute, in_an_exception, in_a_name):
    for number in range(3):
        with tracer.start_as_current_span(f"good {number}"):
            pass
    try:
        make()
    except ValueError:
        pass
    provider.force_flush()
    print(f"{make.__name__.replace('_', ' ')}, received: {received}")
    found.append(len(received))
    received.clear()
sys.exit(found != [4, 0, 0])
PY
"$folder/venv/bin/python" "$folder/probe.py" "$folder"
