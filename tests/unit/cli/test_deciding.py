"""An act on several items: what one of them is refused, the rest is told and done all the same."""

from typing import Any
from unittest.mock import patch

import psycopg
import pytest
import typer

from streams.cli import deciding
from streams.cli.deciding import Act, decide

ACT = Act("approve", "approved", "approve", {}, lambda _ledger, item, _result: f"{item}", "again")


@pytest.mark.parametrize(
    "refusal",
    [psycopg.errors.InvalidParameterValue, psycopg.errors.ObjectNotInPrerequisiteState],
)
def test_an_item_that_the_one_before_it_left_no_room_for_does_not_end_the_command(
    refusal: type[psycopg.Error], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of them fits alone, as the plan was; both together do not."""
    decided: list[int] = []

    def rows(_ledger: Any, query: str, values: dict[str, Any]) -> list[dict[str, Any]]:
        if query == "parked_states":
            return [
                {"parked_id": item, "state": "open", "decided_by": None} for item in values["items"]
            ]
        if values["item"] == 2:
            raise refusal("no room")
        decided.append(values["item"])
        return [{}]

    with (
        patch.object(deciding, "connected"),
        patch.object(deciding, "_rehearse", return_value=([], [], set())),
        patch.object(deciding, "decision_rows", rows),
        pytest.raises(typer.Exit) as ended,
    ):
        decide("", [1, 2, 3], ACT, "why", yes=True)
    assert ended.value.exit_code == 1
    assert decided == [1, 3]
    assert "refused 2: no room" in capsys.readouterr().err
