"""An order service with SQLAlchemy: each order and its usage are one session's transaction."""

import os
import sys

from sqlalchemy import Row, create_engine, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Model(DeclarativeBase):
    pass


class Order(Model):
    __tablename__ = "orders"
    id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str]
    items: Mapped[int]


USAGE = text("""
    SELECT status, event_id, received_at
    FROM metering.record_usage(:tenant, 'orders', :items, :key, on_conflict => 'raise')
""")


def place(session: Session, order_id: str, tenant: str, items: int, fail: bool) -> Row:
    with session.begin():
        order = {"id": order_id, "tenant_id": tenant, "items": items}
        session.execute(insert(Order).values(order).on_conflict_do_nothing())
        # metering begins
        values = {"tenant": tenant, "items": items, "key": order_id}
        usage = session.execute(USAGE, values).one()  # metering ends
        if fail:
            raise RuntimeError("the warehouse is on fire")
    return usage


def main() -> None:
    """Places an order for each line: id, tenant, items, and `fail` for one that does not work."""
    url = os.environ["DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://", 1)
    engine = create_engine(url)
    with Session(engine) as session:
        for line in sys.stdin:
            order_id, tenant, items, *fail = line.split()
            try:
                print(*place(session, order_id, tenant, int(items), bool(fail)), flush=True)
            except DBAPIError as error:
                print("rolled back:", str(error.orig).splitlines()[0], flush=True)
            except RuntimeError as error:
                print("rolled back:", error, flush=True)
    engine.dispose()


main()
