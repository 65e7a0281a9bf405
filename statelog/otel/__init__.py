"""OpenTelemetry traces, events and metrics of stores, durable runs and LangGraph. See GUIDE.md here.

    import statelog.otel
    statelog.otel.instrument(store)

Needs `pip install 'statelog[otel]'`.
"""

try:
    import opentelemetry.trace  # noqa: F401 - the import fails early if the package is missing
except ModuleNotFoundError as error:
    if not str(error.name).startswith("opentelemetry"):
        raise
    message = "statelog.otel needs opentelemetry-api: pip install 'statelog[otel]'"
    raise ModuleNotFoundError(message, name=error.name) from error

from statelog.late import listing
from statelog.otel.instrumentation import instrument, uninstrument
from statelog.otel.names import CONVENTIONS_VERSION

__all__ = ["CONVENTIONS_VERSION", "instrument", "uninstrument"]

__dir__ = listing(__name__)
