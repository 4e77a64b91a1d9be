"""Host and port → how they stand in an address: one of IPv6 in brackets."""


def bracketed(host: str) -> str:
    """The host as a URL has it."""
    return f"[{host}]" if ":" in host else host


def http_address(host: str, port: int) -> str:
    """Such as `http://127.0.0.1:9400`."""
    return f"http://{bracketed(host)}:{port}"
