"""What aiohttp's server has to say about connections, one structured line each: garbage from strangers is no defect of ours."""

import logging

import structlog
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web import RequestPayloadError

LOG = structlog.get_logger("gateway.api")


class ProtocolLog(logging.Handler):
    """Tells unreadable requests in one line, real faults with their traceback, and nothing of clients that hang up."""

    def emit(self, record: logging.LogRecord) -> None:
        """Pass one line of ``aiohttp.server`` on."""
        error = record.exc_info[1] if record.exc_info else None
        match error:
            case ConnectionError():
                pass
            case HttpProcessingError() | RequestPayloadError():
                # The error's own text would quote what was sent.
                remote = record.args[0] if isinstance(record.args, tuple) and record.args else None
                LOG.info("request_unreadable", remote=remote, problem=type(error).__name__)
            case None:
                LOG.log(record.levelno, "server_said", message=record.getMessage())
            case _:
                LOG.error("server_failed", message=record.getMessage(), exc_info=error)


def log_protocol() -> None:
    """Send what ``aiohttp.server`` logs through `ProtocolLog` only."""
    server = logging.getLogger("aiohttp.server")
    server.handlers = [ProtocolLog()]
    server.propagate = False
    server.setLevel(logging.DEBUG)  # a first request that is not HTTP at all is told at this level
