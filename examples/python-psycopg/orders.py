"""An order service with psycopg: each order and its usage are one transaction."""

import os
import sys

import psycopg


def place(conn: psycopg.Connection, order_id: str, tenant: str, items: int, fail: bool) -> tuple:
    with conn.transaction():
        conn.execute(
            "INSERT INTO orders VALUES (%s, %s, %s) ON CONFLICT (id) DO NOTHING",
            (order_id, tenant, items),
        )
        # metering begins
        usage = conn.execute(
            "SELECT status, event_id, received_at FROM metering.record_usage(%s, 'orders', %s, %s,"
            " on_conflict => 'raise')",
            (tenant, items, order_id),
        ).fetchone()  # metering ends
        if fail:
            raise RuntimeError("the warehouse is on fire")
    return usage


def main() -> None:
    """Places an order for each line: id, tenant, items, and `fail` for one that does not work."""
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as conn:
        for line in sys.stdin:
            order_id, tenant, items, *fail = line.split()
            try:
                print(*place(conn, order_id, tenant, int(items), bool(fail)), flush=True)
            except (psycopg.Error, RuntimeError) as error:
                print("rolled back:", str(error).splitlines()[0], flush=True)


main()
