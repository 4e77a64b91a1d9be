"""What is a secret by its name or its shape never reaches a log or an error."""

import logging
import subprocess
import sys
from io import StringIO

import msgspec
import pytest

from streams.masking import MASK, mask_libraries, masked, masked_value

PLANTED = "pL4nt3dS3cr3t"


@pytest.mark.parametrize(
    ("text", "without"),
    [
        (f"key sk_live_{PLANTED} refused", f"key sk_live_{MASK} refused"),
        (f"rk_test_{PLANTED}", f"rk_test_{MASK}"),
        (f"whsec_{PLANTED}+/=", f"whsec_{MASK}"),
        (f"at postgresql://me:{PLANTED}@host:5432/x?a=b", f"at postgresql://me:{MASK}@host:5432/x?a=b"),
        (f"postgresql://me:a/b{PLANTED}@host/x", f"postgresql://me:{MASK}@host/x"),
        (f"https://user:{PLANTED}@proxy", f"https://user:{MASK}@proxy"),
        (f"host=h user=u password={PLANTED} dbname=d", f"host=h user=u password={MASK} dbname=d"),
        (f"password = 'a \\'{PLANTED}' x", f"password = {MASK} x"),
        (f'{{"sasl.password": "{PLANTED}", "b": 1}}', f'{{"sasl.password": {MASK}, "b": 1}}'),
        (f"'sasl.password': '{PLANTED}'", f"'sasl.password': {MASK}"),
        (
            f'ScramLoginModule required username="u" password="{PLANTED}";',
            f'ScramLoginModule required username="u" password={MASK};',
        ),
        (f"TAILRACE_STRIPE_API_KEY={PLANTED}", f"TAILRACE_STRIPE_API_KEY={MASK}"),
        (f"ssl.keystore.password: {PLANTED}", f"ssl.keystore.password: {MASK}"),
        (f"got 'me:{PLANTED}@127.0.0.1:1'", f"got 'me:{MASK}@127.0.0.1:1'"),
        (f"password:{PLANTED}, user:me", f"password:{MASK}, user:me"),
        (f"{{secret: '{PLANTED}'}}", f"{{secret: {MASK}}}"),
        (f"Authorization: Bearer {PLANTED}", f"Authorization: Bearer {MASK}"),
        (f"client_secret={PLANTED}", f"client_secret={MASK}"),
        (f"AWS_SECRET_ACCESS_KEY={PLANTED}/+", f"AWS_SECRET_ACCESS_KEY={MASK}"),
        (f"aws_session_token = {PLANTED}==", f"aws_session_token = {MASK}"),
    ],
)  # fmt: skip
def test_a_secret_is_known_by_its_shape(text: str, without: str) -> None:
    assert masked(text) == without
    assert masked(without) == without, "masked twice it is the same"


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:9478/metrics",
        "postgresql://me@host:5432/ledger",
        "usage.events-3@17: chunk 4..9",
        "the password is wrong",
        "TAILRACE_STRIPE_API_KEY: is a live key; say --live, or TAILRACE_LIVE=1, to mean it",
        "TAILRACE_KAFKA_SASL_PASSWORD: is not set, and TAILRACE_KAFKA_SECURITY_PROTOCOL is SSL",
        "task_live_view, desk_test_run",
        "acme@example.com: 3 of 5",
        "kafka 127.0.0.1:9092: connection refused",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert masked(text) == text


def test_a_long_text_without_a_space_is_not_read_again_from_each_of_its_letters() -> None:
    parts = ("a", "a.", "a-", "secret", "://:", "a:", "a@", "Basic ")
    # Else this takes hours.
    script = f"from streams.masking import masked\nfor part in {parts}: masked(part * 100_000)"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.parametrize(
    "name",
    ["password", "sasl_password", "ledger_dsn", "api_key", "webhook_secret", "Authorization"],
)
def test_a_secret_is_known_by_its_name(name: str) -> None:
    assert masked_value({"settings": {name: PLANTED}}) == {"settings": {name: MASK}}
    assert masked_value({name: "", "n": 3}) == {name: "", "n": 3}


def test_a_secret_is_found_at_any_depth() -> None:
    value = {"a": [{"b": (f"sk_live_{PLANTED}", ValueError(f"password={PLANTED}"))}], "c": 1.5}
    assert PLANTED not in repr(masked_value(value))
    assert masked_value(value)["c"] == 1.5


def test_libraries_are_masked_whoever_set_up_their_handlers() -> None:
    before = logging.getLogRecordFactory()
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    log = logging.getLogger("some.library")
    log.addHandler(handler)
    try:
        mask_libraries()
        mask_libraries()
        log.error("connecting with %s", f"sk_live_{PLANTED}")
        try:
            raise ValueError(f"postgresql://me:{PLANTED}@host/x")
        except ValueError:
            log.exception("failed")
    finally:
        log.removeHandler(handler)
        logging.setLogRecordFactory(before)
    assert PLANTED not in stream.getvalue()
    assert stream.getvalue().count(MASK) == 3, "the line, the source shown, the error"
    assert "Traceback" in stream.getvalue()


def test_our_own_lines_hold_none() -> None:
    script = f"""
import structlog
from streams.logs import configure_logging
configure_logging("info")
log = structlog.get_logger("test").bind(dsn="{PLANTED}")
try:
    raise ValueError("sk_live_{PLANTED}")
except ValueError as error:
    log.error("failed", exc_info=error, partition=3, text="whsec_{PLANTED}", password="{PLANTED}")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    line = msgspec.json.decode(done.stderr, type=dict[str, object])
    assert PLANTED not in done.stderr
    assert line["partition"] == 3
    assert line["dsn"] == line["password"] == MASK
    assert "ValueError: sk_live_***" in str(line["exception"])


def test_a_traceback_that_is_asked_for_holds_none() -> None:
    script = f"""
from streams.cli.fence import fenced
import typer
app = typer.Typer(add_completion=False)
@app.command()
def fail() -> None:
    raise ValueError("postgresql://me:{PLANTED}@host/x")
import sys
sys.exit(fenced(app, "test", sys.argv[1:]))
"""
    for options in ([], ["--debug"]):
        done = subprocess.run(
            [sys.executable, "-c", script, *options], capture_output=True, text=True, check=False
        )
        assert done.returncode != 0
        assert f"me:{MASK}@host" in done.stderr
        # The line of the script itself is shown by the traceback where it can be read.
        assert PLANTED not in done.stderr
        assert ("Traceback" in done.stderr) == bool(options)
