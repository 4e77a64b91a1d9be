"""An object store in its own protocol, on loopback, in this process: what `s3://` URIs reach."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from xml.etree import ElementTree

import requests
from moto.server import ThreadedMotoServer

ACCESS_KEY: Final = "AKIATAILRACETESTS000"
SECRET_KEY: Final = "an+object/store+secret/of+tests+only+000"
LOGIN: Final[Mapping[str, str]] = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    # Nobody's but these: a machine may have some of its own.
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
}
"""The environment in which a client finds its credentials."""
ANSWER_S: Final = 30
BUCKET: Final = "bucket"


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A running one, with a bucket, as somebody sees it who asks past every library."""

    url: str

    def uri(self, through: str | None = None) -> str:
        """What `--out` takes.

        Args:
            through: the address of what stands before it; else its own.
        """
        host = (through or self.url).removeprefix("http://")
        return f"s3://{BUCKET}/usage?scheme=http&region=eu-central-1&endpoint_override={host}"

    def keys(self) -> list[str]:
        """Names of the objects that can be had, without folders' markers."""
        listed = [each for each in self._found("list-type=2", "Key") if not each.endswith("/")]
        return sorted(listed)

    def under_way(self) -> list[str]:
        """Names of objects whose upload was begun and not ended."""
        return self._found("uploads", "Key")

    def object(self, key: str) -> bytes:
        answer = requests.get(f"{self.url}/{BUCKET}/{key}", timeout=ANSWER_S)
        answer.raise_for_status()
        return answer.content

    def put(self, key: str, body: bytes) -> None:
        """Behind everybody's back."""
        requests.put(f"{self.url}/{BUCKET}/{key}", data=body, timeout=ANSWER_S).raise_for_status()

    def delete(self, key: str) -> None:
        # What nobody signed deletes nothing; what somebody signed is not looked at closer.
        signed = {"Authorization": f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/20261130/x/s3/aws4"}
        answer = requests.delete(f"{self.url}/{BUCKET}/{key}", headers=signed, timeout=ANSWER_S)
        answer.raise_for_status()

    def _found(self, query: str, tag: str) -> list[str]:
        answer = requests.get(f"{self.url}/{BUCKET}?{query}", timeout=ANSWER_S)
        answer.raise_for_status()
        tree: Any = ElementTree.fromstring(answer.content)  # noqa: S314 - our own server's
        return [each.text for each in tree.iter() if each.tag.rpartition("}")[2] == tag]


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """One for the time of a block; it keeps nothing."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        store = ObjectStore(f"http://{host}:{port}")
        requests.post(f"{store.url}/moto-api/reset", timeout=ANSWER_S).raise_for_status()
        requests.put(f"{store.url}/{BUCKET}", timeout=ANSWER_S).raise_for_status()
        yield store
    finally:
        server.stop()
