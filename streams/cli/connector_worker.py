"""`tailrace connector worker-config`: what a Connect worker needs to reach secured brokers.

A Connect worker is started by whoever runs Kafka; these lines belong into its properties file.
"""

from connectors.names import PASSWORD_VARIABLE
from streams.cli import terminal
from streams.cli.options import Dir
from streams.cli.stack import resolve
from streams.kafka_access import connect_security

PASSWORDS = ("TAILRACE_KAFKA_SASL_PASSWORD", "TAILRACE_KAFKA_KEY_PASSWORD")
PROVIDER = {
    "config.providers": "env",
    "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
}


def worker_config(directory: Dir = None) -> None:
    """Prints the lines for a Connect worker's properties by which it reaches the brokers.

    From the same settings as every client of ours: TLS, login. Passwords stand in them as names of
    variables that the Connect worker is started with, the one of the connector's own included.
    """
    settings = resolve(directory).need("kafka_bootstrap")
    lines = connect_security(settings)
    named = [name for name in PASSWORDS if any(name in value for value in lines.values())]
    allowed = "|".join((PASSWORD_VARIABLE, *named))
    for name, value in {
        "bootstrap.servers": settings.kafka_bootstrap,
        **PROVIDER,
        "config.providers.env.param.allowlist.pattern": allowed,
        **lines,
    }.items():
        terminal.data(f"{name}={value}")
    if named:
        terminal.say(f"start the Connect worker with {', '.join(named)} in its environment")
