"""A log level → where a process writes what it does, and how."""

import logging
import sys
from typing import Any

import structlog


def configure_logging(level: str) -> None:
    """Structured lines on stderr: readable at a terminal, JSON elsewhere."""
    # The pool tells of each attempt to connect; ours is one line an outage, with its beginning.
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    renderer: Any = (
        structlog.dev.ConsoleRenderer()
        if sys.stderr.isatty()
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
