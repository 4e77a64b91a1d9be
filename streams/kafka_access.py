"""Settings → how brokers are spoken to: in librdkafka's words, and in those of Connect's Java.

Every client of ours takes the first, a Connect worker the second. Faust is given neither: it opens
no connection of its own.
"""

from streams.settings import PREFIX, Settings, SettingsError

CONNECT_CLIENTS = ("", "producer.", "consumer.", "admin.")
"""A Connect worker's own, and those that it makes for connectors: none inherits from another."""


def client_security(settings: Settings) -> dict[str, str]:
    """Options that every librdkafka client is made with, beside its own."""
    options = {
        "security.protocol": settings.kafka_security_protocol,
        # A certificate of another host is refused; said, though it is the default.
        "ssl.endpoint.identification.algorithm": "https",
        "sasl.mechanisms": settings.kafka_sasl_mechanism,
        "sasl.username": settings.kafka_sasl_username,
        "sasl.password": settings.kafka_sasl_password,
        "ssl.ca.location": settings.kafka_ca_file,
        "ssl.certificate.location": settings.kafka_certificate_file,
        "ssl.key.location": settings.kafka_key_file,
        "ssl.key.password": settings.kafka_key_password,
    }
    return {name: value for name, value in options.items() if value}


def client_config(settings: Settings) -> dict[str, str]:
    """What a librdkafka client needs to reach the brokers, and no more."""
    return {**client_security(settings), "bootstrap.servers": settings.kafka_bootstrap}


def connect_security(settings: Settings) -> dict[str, str]:
    """Lines of a Connect worker's properties; passwords stand in them as names of variables.

    Raises:
        SettingsError: certificate and key are two files.
    """
    if settings.kafka_certificate_file != settings.kafka_key_file:
        problem = "KAFKA_KEY_FILE: Java reads certificate and key from one PEM file: name it twice"
        raise SettingsError([PREFIX + problem])
    options = {"security.protocol": settings.kafka_security_protocol}
    if settings.kafka_security_protocol.endswith("SSL"):
        options["ssl.endpoint.identification.algorithm"] = "https"
    if settings.kafka_sasl_mechanism:
        options["sasl.mechanism"] = settings.kafka_sasl_mechanism
        options["sasl.jaas.config"] = _login(settings)
    if settings.kafka_ca_file:
        options["ssl.truststore.type"] = "PEM"
        options["ssl.truststore.location"] = settings.kafka_ca_file
    if settings.kafka_certificate_file:
        options["ssl.keystore.type"] = "PEM"
        options["ssl.keystore.location"] = settings.kafka_certificate_file
        if settings.kafka_key_password:
            options["ssl.key.password"] = _variable("KAFKA_KEY_PASSWORD")
    return {
        f"{client}{name}": value for client in CONNECT_CLIENTS for name, value in options.items()
    }


def _login(settings: Settings) -> str:
    plain = settings.kafka_sasl_mechanism == "PLAIN"
    kind = "plain.PlainLoginModule" if plain else "scram.ScramLoginModule"
    user = settings.kafka_sasl_username.replace("\\", "\\\\").replace('"', '\\"')
    return (
        f"org.apache.kafka.common.security.{kind} required "
        f'username="{user}" password="{_variable("KAFKA_SASL_PASSWORD")}";'
    )


def _variable(setting: str) -> str:
    return f"${{env:{PREFIX}{setting}}}"
