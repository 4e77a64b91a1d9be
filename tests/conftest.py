"""Fixtures every suite may ask for."""

from __future__ import annotations

from tests.support.postgres import fresh_database, postgres_server

__all__ = ["fresh_database", "postgres_server"]
