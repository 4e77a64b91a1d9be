"""A log level → where a process writes what it does, and how."""

import logging
import sys
from typing import Any

import structlog

from streams.masking import mask_fields, mask_libraries

QUIET = ("stripe", "aiokafka", "urllib3", "asyncio")
"""Below warnings these tell what they send: customers and values of tenants among it."""


def configure_logging(level: str) -> None:
    """Structured lines on stderr: readable at a terminal, JSON elsewhere; secrets masked."""
    mask_libraries()
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
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
            # Last, when exceptions are text: theirs is where secrets come from unasked.
            mask_fields,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
