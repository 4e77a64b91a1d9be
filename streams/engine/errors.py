# ruff: noqa: N818  # a fault is named after what happened, as the operator reads it
"""Every fault the engine can name, as one tree.

EngineError
├── SettingsRefused            the settings contradict each other
├── DataDirectoryInUse         another process holds the data directory
├── LogRefused                 one partition is held until a person acts
│   ├── LogUnknown             the topic or the partition does not exist
│   ├── LogRecreated           the topic is another one than the state was made from
│   ├── LogTruncated           the log ends before the state does
│   ├── LogGap                 records were removed before they were read
│   ├── AnchorMismatch         the record at the applied offset is not the one that was settled
│   ├── PartitionCountChanged  the topic has another number of partitions
│   ├── RecoveryGap            neither packed log nor source reaches back far enough
│   ├── EarlierBehind          another partition has not settled what this one must remember
│   ├── ForeignPackedRecord    the packed log holds the state of another log
│   ├── UnknownPackedVersion   a packed record was written by a newer release
│   ├── PackedRecordDamaged    a packed record cannot be read
│   └── PartitionHeld          the agent, the operator or the poison rule asked for it
├── ChunkRefused               the chunk in hand must not be settled; its record is not to blame
│   ├── LogChanged             the topic was recreated under the running worker
│   ├── LogUnverified          the broker did not answer whose log this is
│   ├── Fenced                 the partition belongs to another worker by now
│   ├── ChunkTooLarge          its packed record would not fit; it is cut in half and tried again
│   └── DeliveryFailed         the broker did not take a record in time
├── StateDamaged               RocksDB is unreadable or incomplete; it is set aside and rebuilt
├── StateUnavailable           RocksDB cannot work: disk full, no permission; nothing is damaged
├── StateLocked                RocksDB is still open elsewhere in this process
├── TableClosed                the partition moved while its table was in use
├── SettlementRefused          a settlement does not continue the table; a bug in the caller
├── ConsumerFatal              librdkafka's consumer is dead for good
└── RecoveryCancelled          the partition moved away while it was being recovered
"""


class EngineError(Exception):
    """The engine met something it must not continue from."""


class SettingsRefused(EngineError):
    """The settings contradict each other; the text lists every problem and its fix."""


class DataDirectoryInUse(EngineError):
    """Another process holds the data directory; give each worker its own, or stop the other."""


class LogRefused(EngineError):
    """This partition is held: assigned but not read, until a person acts. Others go on."""


class LogUnknown(LogRefused):
    """The topic or the partition does not exist; create the topics, then restart the worker."""


class LogRecreated(LogRefused):
    """The topic is another one than the state was made from; never swallowed as old records."""


class LogTruncated(LogRefused):
    """The log ends before the state does: it was cut, or restored from an older copy."""


class LogGap(LogRefused):
    """Records were removed from the log before they were read; re-emit them from the source."""


class AnchorMismatch(LogRefused):
    """The record at the applied offset is not the one that was settled: another history."""


class PartitionCountChanged(LogRefused):
    """The topic's partition count changed, so keys moved to partitions that do not know them."""


class RecoveryGap(LogRefused):
    """The state cannot be rebuilt: neither packed log nor source reaches back far enough."""


class EarlierBehind(LogRefused):
    """A partition whose keys came here has not settled all of them yet; it is tried again."""


class ForeignPackedRecord(LogRefused):
    """The packed log holds the state of another source log; give the new log its own topic."""


class UnknownPackedVersion(LogRefused):
    """A packed record was written by a newer release; upgrade this worker, then restart it."""


class PackedRecordDamaged(LogRefused):
    """A packed record cannot be read; something else wrote to the packed log."""


class PartitionHeld(LogRefused):
    """The agent, the operator or the poison rule asked to hold the partition; the text says why."""


class ChunkRefused(EngineError):
    """The chunk in hand must not be settled; no record in it is to blame."""


class LogChanged(ChunkRefused):
    """The topic was recreated under the running worker; the process ends, the start refuses it."""


class LogUnverified(ChunkRefused):
    """The broker did not answer whose log this is, so nothing may be written for the chunk."""


class Fenced(ChunkRefused):
    """The partition belongs to another worker by now; it settles the same records."""


class ChunkTooLarge(ChunkRefused):
    """The chunk's packed record would not fit the broker's limit; it is cut and tried again."""


class DeliveryFailed(ChunkRefused):
    """The broker did not take a record in time; nothing was moved, the chunk is tried again."""


class StateDamaged(EngineError):
    """The partition's RocksDB is unreadable or incomplete; it is set aside and rebuilt."""


class StateUnavailable(EngineError):
    """RocksDB cannot work though nothing is damaged: check free space and permissions."""


class StateLocked(EngineError):
    """The partition's RocksDB is still open elsewhere in this process."""


class TableClosed(EngineError):
    """The partition moved or was discarded while its table was in use; drop what was read."""


class SettlementRefused(EngineError):
    """The settlement does not continue the table; a bug in the caller, nothing was written."""


class ConsumerFatal(EngineError):
    """The group consumer is dead for good; only a new process helps."""


class RecoveryCancelled(EngineError):
    """The partition moved away while it was being recovered; nothing was handed over."""
