"""What the engine is told, as one frozen value; contradictions are refused all at once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from streams.engine.errors import SettingsRefused


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Settings of one worker's engine."""

    bootstrap: str
    """Broker addresses, `host:port` with commas between."""
    group: str
    """Consumer group."""
    client_id: str
    """Name of this worker in the broker's logs."""
    topic: str
    """Source topic."""
    packed_topic: str
    """Packed log."""
    partitions: int
    """Partition count both must have."""
    data_dir: Path
    """Directory of this worker alone."""
    horizon_ms: int
    """How long ids are remembered, at least, by log time."""
    reach_back_ms: int
    """How far back a rebuilt state must reach: max(horizon, longest window + skew) + 1 day."""
    chunk_records_max: int = 5_000
    """Records in one chunk, at most."""
    chunk_bytes_max: int = 2 << 20
    """Bytes of keys and values in one chunk, at most; one record may be larger."""
    packed_bytes_max: int = 4 << 20
    """Bytes of one packed record, at most: half of `max.message.bytes` of the packed log."""
    fetch_wait_s: float = 0.01
    """How long a fetch gathers more once it has a record: the latency of a trickle."""
    settle_deadline_s: float = 60.0
    """How long a chunk may take; above a broker restart."""
    delivery_timeout_ms: int = 45_000
    """How long the broker may take for a packed record; below the settle deadline."""
    session_timeout_ms: int = 10_000
    """How long the group waits for a silent worker. Refused by `group_protocol` consumer, where
    the broker sets it; used there only for the age from which a chunk asks the broker."""
    heartbeat_interval_ms: int = 1_000
    """How often a worker reports: also about the pause of a partition that moves."""
    max_poll_interval_ms: int = 300_000
    """How long the group waits for a worker that does not poll; above the settle deadline."""
    group_protocol: str = "classic"
    """`classic`, or `consumer` with brokers from 4.0 on."""
    instance_id: str | None = None
    """Static membership: only where a supervisor restarts the same worker within the session."""
    security: Mapping[str, str] = field(default_factory=dict, repr=False)
    """How brokers are spoken to, as librdkafka's own options; passwords among them."""
    block_cache_bytes: int = 64 << 20
    """RocksDB's block cache, shared by the partitions."""
    librdkafka_log_level: int = 2
    """Syslog level of librdkafka's own lines; from 3 on a dead broker is told many times a second.
    """

    def __post_init__(self) -> None:
        """Refuse contradictions.

        Raises:
            SettingsRefused: naming every field and rule.
        """
        problems = [text for wrong, text in self._rules() if wrong]
        if problems:
            raise SettingsRefused("engine settings: " + "; ".join(problems))

    def _rules(self) -> list[tuple[bool, str]]:
        positive = {
            name: getattr(self, name)
            for name in (
                "partitions",
                "horizon_ms",
                "chunk_records_max",
                "chunk_bytes_max",
                "packed_bytes_max",
                "fetch_wait_s",
                "settle_deadline_s",
                "session_timeout_ms",
                "heartbeat_interval_ms",
            )
        }
        static = self.instance_id is not None
        return [
            *((value <= 0, f"{name}: above 0, not {value}") for name, value in positive.items()),
            (
                self.group_protocol not in ("classic", "consumer"),
                f"group_protocol: classic or consumer, not {self.group_protocol!r}",
            ),
            (
                static and self.group_protocol == "consumer",
                "instance_id: not together with group_protocol consumer, where a crashed worker's "
                "id stays taken for the whole session and its restart dies; leave it out",
            ),
            (
                self.reach_back_ms < self.horizon_ms,
                "reach_back_ms: at least horizon_ms, or a rebuilt state has forgotten ids",
            ),
            (
                self.settle_deadline_s * 1_000 >= self.max_poll_interval_ms,
                "settle_deadline_s: below max_poll_interval_ms, or the group takes a partition "
                "away from a chunk that is still allowed to settle",
            ),
            (
                self.delivery_timeout_ms >= self.settle_deadline_s * 1_000,
                "delivery_timeout_ms: below settle_deadline_s, so that a failed delivery is named",
            ),
            (
                self.heartbeat_interval_ms * 3 > self.session_timeout_ms,
                "heartbeat_interval_ms: at most a third of session_timeout_ms",
            ),
        ]
