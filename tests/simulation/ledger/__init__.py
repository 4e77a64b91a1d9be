"""The ledger's database in memory: its tables as dictionaries, its named statements as methods.

The adapters above it are the product's. What stands here follows `schemas/ledger/*.sql` statement
by statement; that the SQL does the same is shown where a real PostgreSQL runs. Transactions are
serial: races between them are not modelled. All customers have one billing cycle, or none.
"""
