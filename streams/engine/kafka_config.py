"""Settings → options of the engine's Kafka clients, each chosen on purpose."""

from streams.engine.settings import EngineSettings

Config = dict[str, str | int | float | bool]


def _client(settings: EngineSettings, role: str) -> Config:
    return {
        **settings.security,
        "bootstrap.servers": settings.bootstrap,
        "client.id": f"{settings.client_id}-{role}",
        # librdkafka reports a broker that is down twenty times a second.
        "log_level": settings.librdkafka_log_level,
        "log.connection.close": False,
        # A broker that restarts is back within seconds; the default waits up to ten.
        "reconnect.backoff.max.ms": 1_000,
    }


def admin_config(settings: EngineSettings) -> Config:
    """Options of the client that asks for topic ids."""
    return _client(settings, "admin")


def group_consumer_config(settings: EngineSettings) -> Config:
    """Options of the member of the group."""
    config: Config = {
        **_client(settings, "feeder"),
        "group.id": settings.group,
        "group.protocol": settings.group_protocol,
        # Offsets are committed by hand, after the state holds what they stand for.
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # A position outside the log is a finding, never a reason to start elsewhere.
        "auto.offset.reset": "error",
        "max.poll.interval.ms": settings.max_poll_interval_ms,
        "queued.max.messages.kbytes": 65_536,
        # A deleted topic is noticed at a refresh; the default is five minutes.
        "topic.metadata.refresh.interval.ms": 10_000,
        # Only committed transactions of a source that uses them.
        "isolation.level": "read_committed",
        "check.crcs": True,
    }
    if settings.group_protocol == "classic":
        config |= {
            # Partitions that do not move are not stopped by a rebalance.
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": settings.session_timeout_ms,
            "heartbeat.interval.ms": settings.heartbeat_interval_ms,
        }
    if settings.instance_id is not None:
        config["group.instance.id"] = settings.instance_id
    return config


def reader_config(settings: EngineSettings) -> Config:
    """Options of the consumer that recovers; it never joins the group nor commits."""
    return {
        **_client(settings, "recovery"),
        "group.id": f"{settings.group}.recovery",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        # Questions wait behind a fetch on the same connection; the default is half a second.
        "fetch.wait.max.ms": 10,
        "check.crcs": True,
        # The anchor is read from any source log, the packed log is plain.
        "isolation.level": "read_committed",
    }


def packed_producer_config(settings: EngineSettings) -> Config:
    """Options of the producer of packed records."""
    return {
        **_client(settings, "packed"),
        "enable.idempotence": True,
        "acks": "all",
        # One record at a time, and the chunk waits for it.
        "linger.ms": 0,
        "compression.type": "lz4",
        "message.timeout.ms": settings.delivery_timeout_ms,
        "message.max.bytes": settings.packed_bytes_max * 2,
    }
