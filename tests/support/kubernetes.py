"""What deploy/kubernetes holds, as values; read without a cluster, and without kustomize."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

BASE: Final = Path(__file__).parents[2] / "deploy" / "kubernetes"
Resource = Mapping[str, Any]


def read(name: str) -> Any:
    """The one document of a file."""
    return yaml.safe_load((BASE / name).read_text(encoding="utf-8"))


def resources() -> list[Resource]:
    """Everything that the base lists, in its order."""
    listed = read("kustomization.yaml")["resources"]
    texts = [(BASE / name).read_text(encoding="utf-8") for name in listed]
    return [found for text in texts for found in yaml.safe_load_all(text)]


def name_of(resource: Resource) -> str:
    """Such as `deployment/tailrace-console`."""
    return f"{resource['kind'].lower()}/{resource['metadata']['name']}"


def one(kind: str, name: str) -> Resource:
    """The only resource of that kind and name."""
    (found,) = [r for r in resources() if (r["kind"], r["metadata"]["name"]) == (kind, name)]
    return found


def template_of(resource: Resource) -> Resource | None:
    """What its pods are made from; None where it makes none."""
    spec = resource.get("spec", {})
    if resource["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    found: Resource | None = spec.get("template")
    return found


def templates() -> dict[str, Resource]:
    """All templates of pods, by what makes the pods."""
    found = {name_of(resource): template_of(resource) for resource in resources()}
    return {name: template for name, template in found.items() if template is not None}


def settings() -> dict[str, str]:
    """What all pods are told of what is not secret."""
    lines = (BASE / "settings.env").read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


def containers(template: Resource) -> Iterator[Resource]:
    """Those of a pod, the ones before its start among them."""
    spec = template["spec"]
    yield from (*spec.get("initContainers", ()), *spec["containers"])


def is_selected(labels: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    """Whether a selector means what carries these labels."""
    return selector.items() <= labels.items()
