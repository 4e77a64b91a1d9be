"""Statements of `queries_facts.sql`: what partitions tell."""

from typing import Any
from zlib import crc32

import msgspec

from streams.core.catalogue import MeterVersion
from tests.simulation.ledger.rows import Cell, Entry, Level, Parked, SeriesKey, Span
from tests.simulation.ledger.work_list import WorkList

Rows = list[dict[str, Any]]


class Facts(WorkList):
    """Positions, readings, entries and parked items."""

    meters: dict[tuple[str, int], MeterVersion]

    # -- logs and positions ------------------------------------------------------------------------

    def log_known(self, log_id: str, log_topic: str) -> list[tuple[str, bool]]:
        del log_topic
        topic = self.tables.logs.get(log_id)
        return [] if topic is None else [(topic, log_id in self.tables.spans)]

    def log_note_span(self, log_id: str, partitions: int, **_: object) -> None:
        if log_id in self.tables.logs:
            self.tables.spans.setdefault(log_id, Span(log_id, 0, partitions))

    def grow_log(
        self, root: str, grown: str, present: int, wanted: int, boundaries: tuple[int, ...]
    ) -> bool:
        """What a person makes known; whether it was not."""
        tables = self.tables
        if grown in tables.spans:
            return False
        assert root in tables.logs, "the ledger follows no such log"
        noted = max(s.partitions for s in tables.spans.values()) if tables.spans else None
        told_beyond = any(p >= present for log_id, p in tables.positions if log_id == root)
        if noted is None or (noted == wanted and len(tables.spans) == 1 and not told_beyond):
            tables.spans[root] = Span(root, 0, present)
            noted = present
        assert noted == present, "another count is noted"
        tables.logs[grown] = tables.logs[root]
        tables.spans[grown] = Span(root, present, wanted, boundaries)
        self.note("growth made known", present, wanted, *boundaries)
        return True

    def log_register_first(self, log_id: str, log_topic: str) -> None:
        if not self.tables.logs:
            self.tables.logs[log_id] = log_topic

    def position_read(self, log_id: str, partition: int) -> int | None:
        return self.tables.positions.get((log_id, partition))

    def position_lock(self, log_id: str, partition: int, **_: object) -> int:
        return self.tables.positions.get((log_id, partition), -1)

    def position_advance(self, log_id: str, partition: int, position: int, **_: object) -> int:
        at = log_id, partition
        self.tables.positions[at] = max(self.tables.positions.get(at, -1), position)
        self.note("position", partition, self.tables.positions[at])
        return self.tables.positions[at]

    def positions_behind(self, rows: str) -> list[tuple[int, int]]:
        told: Rows = msgspec.json.decode(rows)
        stored = [self.tables.positions.get((r["log_id"], r["partition"]), -1) for r in told]
        return [(r["n"], at) for r, at in zip(told, stored, strict=True) if at < r["acknowledged"]]

    def note_went_back(
        self, log_id: str, partition: int, acknowledged: int, stored: int, detail: str
    ) -> bool:
        for (log, part, remembered, held), adopted in self.tables.went_back.items():
            known = (log, part) == (log_id, partition)
            if adopted and known and remembered >= acknowledged and held <= stored:
                return True
        self.tables.went_back.setdefault((log_id, partition, acknowledged, stored), False)
        if "ledger_went_back" not in self.tables.halts:
            self.tables.halts["ledger_went_back"] = detail
            self.note("halted", partition, acknowledged, stored)
        return False

    # -- readings ----------------------------------------------------------------------------------

    def apply_levels(self, log_id: str, partition: int, rows: str) -> int:
        taken = 0
        for r in _rows(rows):
            key = _series(r, log_id)
            known = self.tables.levels.get(key)
            due_us = self._due_us(r)
            if known is None:
                self.tables.levels[key] = Level(
                    key, r["end_us"], partition, r["birth"], r["count"], int(r["total"]),
                    int(r["digest"]), due_us,
                )  # fmt: skip
            elif (
                known.count < r["count"]
                and known.partition == partition
                and known.birth == r["birth"]
            ):
                known.count, known.total = r["count"], int(r["total"])
                known.digest = int(r["digest"])
                known.due_us = due_us if known.due_us is None else known.due_us
            else:
                continue
            taken += 1
        return taken

    def find_levels(self, log_id: str, partition: int, rows: str) -> int:
        found = 0
        for r in _rows(rows):
            known = self.tables.levels[_series(r, log_id)]
            born = known.partition == partition and known.birth == r["birth"]
            same = known.total == int(r["total"]) and known.digest == int(r["digest"])
            if not born or (known.count == r["count"] and not same):
                kind = "level_differs" if born else "level_birth"
                self._find(kind, f"{known.key} {r['birth']} {r['count']}")
                known.held = True
                found += 1
        return found

    def apply_cells(self, log_id: str, partition: int, rows: str) -> int:
        taken = 0
        for r in _rows(rows):
            key = r["source"], r["minute_us"], r["verdict_class"], log_id, partition
            known = self.tables.cells.get(key)
            if known is None:
                self.tables.cells[key] = Cell(r["birth"], r["count"], int(r["digest"]))
            elif known.count < r["count"] and known.birth == r["birth"]:
                known.count, known.digest = r["count"], int(r["digest"])
            else:
                continue
            taken += 1
        return taken

    def find_cells(self, log_id: str, partition: int, rows: str) -> int:
        found = 0
        for r in _rows(rows):
            key = r["source"], r["minute_us"], r["verdict_class"], log_id, partition
            known = self.tables.cells[key]
            if known.birth != r["birth"] or (
                known.count == r["count"] and known.digest != int(r["digest"])
            ):
                self._find("cell_differs", f"{key} {r['birth']} {r['count']}")
                found += 1
        return found

    def apply_canaries(self, log_id: str, partition: int, rows: str) -> int:
        del log_id, partition
        for r in _rows(rows):
            at = r["source"], r["token"], r["partition"]
            self.tables.tokens.setdefault(at, r["received_us"])
        return 0

    # -- entries and parked items ------------------------------------------------------------------

    def apply_entries(self, log_id: str, partition: int, rows: str) -> int:
        del log_id, partition
        made = []
        for r in _rows(rows):
            if (r["kind"], r["event_id"]) in self.tables.identities:
                continue
            entry = Entry(
                0, r["kind"], r["tenant_id"], r["metric"], r["version"], r["start_us"],
                r["end_us"], r["delta"], r["event_id"], r["content"], r["occurred_us"],
            )  # fmt: skip
            made.append(self.insert_entry(entry))
        self.place_entries(made)
        return len(made)

    def find_entries(self, rows: str, **_: object) -> int:
        found = 0
        for r in _rows(rows):
            known = self.tables.identities.get((r["kind"], r["event_id"]))
            entry = None if known is None else self.entry(known)
            if entry and (entry.delta, entry.content) != (r["delta"], r["content"]):
                self._find("entry_differs", f"{r['kind']} {r['event_id']} {r['delta']}")
                found += 1
        return found

    def apply_parked(self, log_id: str, partition: int, rows: str) -> int:
        for r in _rows(rows):
            identity: object = (log_id, partition, r["record_offset"])
            if r["event_id"] is not None:
                identity = (r["kind"], r["reason"], r["event_id"], r["content"])
            if identity in self.tables.parked_identities:
                continue
            self.tables.parked_identities.add(identity)
            number = len(self.tables.parked) + 1
            self.tables.parked.append(Parked(number, r["kind"], r["reason"], r))
            self.note("parked", r["kind"], r["reason"], r["event_id"])
        return 0

    # -- inside ------------------------------------------------------------------------------------

    def _due_us(self, r: dict[str, Any]) -> int:
        """The window's end and the close delay, once again spread by hash."""
        delay_us = self.meters[r["metric"], r["version"]].close_delay_us
        spread = crc32((r["tenant_id"] + r["metric"]).encode()) & 1023
        return int(r["end_us"]) + delay_us + delay_us * spread // 1024

    def _find(self, kind: str, subject: str) -> None:
        if (kind, subject) not in self.tables.findings:
            self.tables.findings[kind, subject] = "open"
            self.note("finding", kind, subject)


def _rows(text: str) -> Rows:
    rows: Rows = msgspec.json.decode(text)
    return rows


def _series(r: dict[str, Any], log_id: str) -> SeriesKey:
    return r["tenant_id"], r["metric"], r["start_us"], r["version"], r["shard"], log_id
