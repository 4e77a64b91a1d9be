"""An armed fault of the stand-in is told with its end: to everything else it is an outage."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import pytest
import requests

from sandbox import armed

URL = "http://127.0.0.1:9"


def answered(*faults: dict[str, Any]) -> requests.Response:
    """What `requests` gives back."""
    answer = requests.Response()
    answer.status_code = 200
    answer.raw = BytesIO(json.dumps({"faults": faults}).encode())
    return answer


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
    monkeypatch.setattr(requests, "request", lambda *_args, **_options: answered(*faults))
    assert armed.told(URL) == said


def test_a_stand_in_that_does_not_tell_is_no_failure_of_the_command() -> None:
    assert armed.told(URL) == ["  stripe: its armed faults are not known (ConnectionError)"]
