"""What is said of a connection that was not got: the line that tells, and whose fault it is."""

import pytest

from sandbox.ports import free_ports
from streams.cli.database import connected
from streams.cli.errors import UnavailableError


def test_a_server_that_is_away_is_named_with_its_address_and_the_reason() -> None:
    (port,) = free_ports(1)
    with (
        pytest.raises(UnavailableError) as away,
        connected(f"postgresql://me:hush@127.0.0.1:{port}/x", "the ledger"),
    ):
        pytest.fail("nobody listens there")
    assert away.value.what == (
        f'the ledger: PostgreSQL is not reachable: connection to server at "127.0.0.1", '
        f"port {port} failed: Connection refused"
    )
