"""An armed fault of the stand-in is told with its end: to everything else it is an outage."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from sandbox import armed

URL = "http://127.0.0.1:9"


class Answered:
    """What `requests` gives back."""

    ok = True

    def __init__(self, *faults: dict[str, Any]) -> None:
        self.faults = list(faults)

    def json(self) -> dict[str, Any]:
        return {"faults": self.faults}


OUTAGE = {"id": 1, "kind": "outage", "struck": 7, "spent": False}


@pytest.mark.parametrize(
    ("faults", "said"),
    [
        ((), []),
        (({**OUTAGE, "spent": True},), []),
        (
            (OUTAGE,),
            [
                "  stripe: FAULT outage is armed, it struck 7 times",
                f"    end all of them: `curl -X DELETE {URL}/_sandbox/faults`",
            ],
        ),
    ],
    ids=["none", "spent", "armed"],
)
def test_faults_that_strike_still_are_named(
    faults: tuple[dict[str, Any], ...], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "get", lambda *_args, **_options: Answered(*faults))
    assert armed.told(URL) == said


def test_a_stand_in_that_does_not_tell_is_no_failure_of_the_command() -> None:
    assert armed.told(URL) == ["  stripe: its armed faults are not known (ConnectionError)"]
