"""Billing intervals of every kind, for tests of periods in the core and in SQL."""

INTERVALS = (
    "day",
    "week",
    "month",
    "year",
    "45 days",
    "2 weeks",
    "3 months",
    "36 months",
    "3 years",
)
