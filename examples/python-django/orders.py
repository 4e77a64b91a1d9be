"""An order service with Django: each order and its usage are one atomic block."""

import os
import sys
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.db import DatabaseError, connection, models, transaction

url = urlsplit(os.environ["DATABASE_URL"])
DATABASE = {
    "ENGINE": "django.db.backends.postgresql",
    "NAME": url.path.lstrip("/"),
    "HOST": url.hostname,
    "PORT": url.port,
    "USER": url.username,
    "PASSWORD": url.password or "",
}
settings.configure(DATABASES={"default": DATABASE}, USE_TZ=True)
django.setup()


class Order(models.Model):
    id = models.TextField(primary_key=True)
    tenant_id = models.TextField()
    items = models.IntegerField()

    class Meta:
        app_label = "orders"
        db_table = "orders"
        managed = False


USAGE = """
    SELECT status, event_id, received_at
    FROM metering.record_usage(%s, 'orders', %s, %s, on_conflict => 'raise')
"""


def place(order_id: str, tenant: str, items: int, fail: bool) -> tuple:
    with transaction.atomic():
        Order.objects.get_or_create(id=order_id, defaults={"tenant_id": tenant, "items": items})
        # metering begins
        with connection.cursor() as cursor:
            cursor.execute(USAGE, (tenant, items, order_id))
            usage = cursor.fetchone()  # metering ends
        if fail:
            raise RuntimeError("the warehouse is on fire")
    return usage


def main() -> None:
    """Places an order for each line: id, tenant, items, and `fail` for one that does not work."""
    for line in sys.stdin:
        order_id, tenant, items, *fail = line.split()
        try:
            print(*place(order_id, tenant, int(items), bool(fail)), flush=True)
        except (DatabaseError, RuntimeError) as error:
            print("rolled back:", str(error).splitlines()[0], flush=True)
    connection.close()


main()
