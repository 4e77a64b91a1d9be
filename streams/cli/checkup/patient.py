"""What checks share: every neighbour is asked for at most once, and closed at the end."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from connectors.connect_answers import ConnectorStatus, Offsets
from connectors.connect_client import ConnectClient
from connectors.errors import ConnectorUnknownError
from connectors.names import connector_name
from connectors.observation import Observation, observe
from connectors.source_config import render
from connectors.source_settings import SourceSettings
from schemas.migrations import SchemaName, missing
from streams.adapters.clock import SystemClock
from streams.cli.capture_access import Reach, connect_client, source_settings
from streams.cli.checkup.check import Fix, NotMadeError, Trouble, answers
from streams.cli.cycles import read_catalogue
from streams.cli.database import Connection, connected, plain
from streams.cli.stack import Stack
from streams.kafka_access import client_security

if TYPE_CHECKING:
    import psycopg

    from streams.core.catalogue import MeterVersion
    from streams.core.live_meter import LiveMeter
    from streams.topics import TopicFinding

T = TypeVar("T")


class Patient:
    """A stack that is looked at. Whatever failed once is not waited for again."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.settings = stack.settings
        self._known: dict[str, Any] = {}
        self._failed: dict[str, Exception] = {}
        self._open = ExitStack()

    def close(self) -> None:
        """Ends every connection."""
        self._open.close()

    def once(self, name: str, ask: Callable[[], T]) -> T:
        """The answer to a question that is asked a single time, or its failure again."""
        if name in self._failed:
            raise self._failed[name]
        if name not in self._known:
            try:
                self._known[name] = ask()
            except Exception as error:
                self._failed[name] = error
                raise
        answer: T = self._known[name]
        return answer

    def set(self, *names: str) -> None:
        """Asks whether these settings are there.

        Raises:
            NotMadeError: naming those that are not.
        """
        missing = [f"TAILRACE_{n.upper()}" for n in names if not getattr(self.settings, n)]
        if missing:
            message = f"{', '.join(missing)} not set"
            raise NotMadeError(message)

    @property
    def service(self) -> Connection:
        """The service's database, as the login of the settings."""
        self.set("source_dsn")
        return self.once("service", lambda: self._database(self.settings.source_dsn, "service's"))

    @property
    def ledger(self) -> Connection:
        """The ledger, as the login of the settings."""
        self.set("ledger_dsn")
        return self.once("ledger", lambda: self._database(self.settings.ledger_dsn, "ledger's"))

    @property
    def ledger_dsn(self) -> str:
        """Where the ledger is, once it has answered."""
        answers(self.ledger)
        return self.settings.ledger_dsn

    def plain(self, dsn: str) -> "psycopg.Connection[Any]":
        """A connection of its own, for packages that read columns by position."""
        whose = "service's" if dsn == self.settings.source_dsn else "ledger's"
        return plain(self._database(dsn, whose))

    def lacking(self, schema: SchemaName, dsn: str) -> Iterator[Trouble]:
        """What a database has not of `ledger` or `outbox` as this release brings them."""
        lacks = missing(self.plain(dsn), schema)
        if lacks:
            yield Trouble(
                f"the {schema} lacks {', '.join(lacks)}",
                "this release asks for what is not there",
                Fix("shell", f"tailrace schema install {schema}"),
            )

    def in_force(self) -> "list[MeterVersion]":
        """Of each metric the version that judges usage from now on."""
        catalogue = self.once("catalogue", lambda: read_catalogue(self.ledger))
        return list(catalogue.from_now_on())

    def _database(self, dsn: str, whose: str) -> Connection:
        return self._open.enter_context(connected(dsn, f"the {whose} database"))

    @property
    def connect(self) -> ConnectClient:
        """Kafka Connect, once it has answered."""
        self.set("connect_url")
        return self.once("connect", self._connect)

    def _connect(self) -> ConnectClient:
        client = self._open.enter_context(connect_client(self.stack, patience_s=3.0))
        client.plugins()
        return client

    @property
    def source(self) -> SourceSettings:
        """The source as its connector is told of it."""
        self.set("source_dsn")
        return source_settings(self.stack, Reach())

    @property
    def connector(self) -> str:
        """The connector's name."""
        return connector_name(self.settings.source)

    @property
    def wanted(self) -> dict[str, str]:
        """The config that this release gives the connector."""
        return render(self.source)

    @property
    def held(self) -> dict[str, str]:
        """The config that Connect holds.

        Raises:
            NotMadeError: there is no such connector, which is another check's trouble.
        """
        config = self.once("config", lambda: self.connect.config(self.connector))
        if config is None:
            message = f"there is no connector {self.connector}"
            raise NotMadeError(message)
        return config

    def observation(self) -> Observation:
        """Slot, publication and positions; without Connect what the database alone tells."""
        return self.once("observation", self._observe)

    @property
    def connect_answers(self) -> bool:
        """Whether the observation has Connect's side too."""
        try:
            answers(self.connect)
        except Exception:  # noqa: BLE001 - why it does not answer is said by its own check
            return False
        return True

    def _observe(self) -> Observation:
        client = self.connect if self.connect_answers else _NoConnect()
        answers(self.service)
        connection = self.plain(self.settings.source_dsn)
        return observe(connection, client, self.connector, self.source)  # type: ignore[arg-type]  # of Connect three questions are asked

    def topics(self) -> "list[TopicFinding]":
        """The broker's topics against the one table."""
        self.set("kafka_bootstrap")
        return self.once("topics", self._topics)

    def _topics(self) -> "list[TopicFinding]":
        # Loaded for this alone: it brings Kafka's client.
        topics = import_module("streams.topics")
        settings = self.settings
        found: list[TopicFinding] = topics.check(
            settings.kafka_bootstrap,
            partitions=settings.partitions,
            replication=settings.replication,
            security=client_security(settings),
        )
        return found

    def broker_config(self) -> Mapping[str, str]:
        """What the broker was told, as it says itself."""
        self.set("kafka_bootstrap")
        topics = import_module("streams.topics")
        return self.once(
            "broker_config",
            lambda: dict(
                topics.broker_config(
                    self.settings.kafka_bootstrap, security=client_security(self.settings)
                )
            ),
        )

    def meters(self) -> "tuple[LiveMeter, ...]":
        """All meters of the Stripe account."""
        self.set("stripe_api_base", "stripe_api_key")
        return self.once(
            "meters",
            lambda: import_module("streams.cli.checkup.account").meters(
                self.settings, sandbox=self.stack.is_sandbox
            ),
        )

    def now_us(self) -> int:
        """This machine's wall clock."""
        return SystemClock().now_us()


class _NoConnect:
    """A Connect that is not asked."""

    def offsets(self, name: str) -> Offsets:
        raise ConnectorUnknownError(name)

    def status(self, name: str) -> ConnectorStatus:
        raise ConnectorUnknownError(name)

    def config(self, _name: str) -> None:
        return None
