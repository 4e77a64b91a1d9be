"""deploy/kubernetes: sound for Kubernetes, right for the service, and no more than it needs."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml
from kubernetes_validate.utils import all_versions, major_minor

from streams.cli.main import run
from streams.ingest.serve import REQUIRED_BY_INGEST, STOP_S
from streams.settings import REQUIRED_BY_WORKER, Settings, SettingsError, load
from streams.stripe_access import request_s_max
from streams.webhook import REQUIRED_BY_WEBHOOK
from tests.support.documents import page
from tests.support.kubernetes import (
    BASE,
    Resource,
    containers,
    is_selected,
    name_of,
    one,
    read,
    resources,
    settings,
    template_of,
    templates,
)
from tests.support.not_run import not_run

ROOT: Final = BASE.parents[1]
MINORS: Final = list(dict.fromkeys(major_minor(version) for version in all_versions()))
VERSIONS: Final = (MINORS[-5], MINORS[-1])
"""The newest that there are schemas for, and the oldest that is a year or so behind."""
TEMPLATES: Final = templates()
NEEDED: Final = {
    "worker": REQUIRED_BY_WORKER,
    "reader": ("ledger_dsn",),
    "webhook": REQUIRED_BY_WEBHOOK,
    "ingest": REQUIRED_BY_INGEST,
}
PORTS: Final = {
    "worker": {"metrics": "METRICS"},
    "exporter": {"metrics": "EXPORTER"},
    "webhook": {"metrics": "METRICS", "http": "WEBHOOK"},
    "ingest": {"metrics": "METRICS", "http": "INGEST"},
}


def component(template: Resource) -> str:
    found: str = template["metadata"]["labels"]["app.kubernetes.io/component"]
    return found


def secret_of(template: Resource) -> str:
    (found,) = [v["secret"]["secretName"] for v in template["spec"]["volumes"] if "secret" in v]
    return str(found).removeprefix("tailrace-")


def told(secret: str) -> Settings:
    text = (BASE / f"{secret}.example.toml").read_text(encoding="utf-8")
    return load(settings(), text, required=NEEDED[secret])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("resource", resources(), ids=name_of)
def test_kubernetes_takes_every_resource_and_knows_every_field(
    resource: dict[str, Any], version: str
) -> None:
    assert kubernetes_validate.validate(resource, version, strict=True) == version


def test_the_parts_are_those_of_a_deployment() -> None:
    assert sorted(TEMPLATES) == [
        "cronjob/tailrace-audit",
        "deployment/tailrace-console",
        "deployment/tailrace-exporter",
        "deployment/tailrace-ingest",
        "deployment/tailrace-webhook",
        "statefulset/tailrace-worker",
    ]


@pytest.mark.parametrize("secret", NEEDED)
def test_settings_and_each_secret_together_are_what_its_processes_need(secret: str) -> None:
    found = told(secret)
    assert not found.livemode
    given = [dsn for dsn in (found.ledger_dsn, found.source_dsn, found.ingest_dsn) if dsn]
    assert given
    assert all("sslmode=verify-full" in dsn for dsn in given)


def test_every_secret_that_a_pod_mounts_has_an_example() -> None:
    assert {secret_of(template) for template in TEMPLATES.values()} == set(NEEDED)


def test_nothing_secret_stands_in_a_manifest() -> None:
    secret = {
        f"TAILRACE_{name.upper()}"
        for name, field in Settings.__dataclass_fields__.items()
        if field.metadata["secret"]
    }
    assert secret
    assert not secret & set(settings())
    assert not any("env" in each for t in TEMPLATES.values() for each in containers(t))
    for example in BASE.glob("*.example.toml"):
        text = example.read_text(encoding="utf-8")
        values = re.findall(r'^\w*(?:password|key|secret) = "(.*)"$', text, re.MULTILINE)
        assert values
        assert all(re.search(r"change.me", value) for value in values)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_pod_may_write_its_state_and_nothing_else(name: str) -> None:
    spec = TEMPLATES[name]["spec"]
    user = re.search(r"^USER (\d+):(\d+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert user
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"] | {"fsGroupChangePolicy": "OnRootMismatch"} == {
        "runAsNonRoot": True,
        "runAsUser": int(user[1]),
        "runAsGroup": int(user[2]),
        "fsGroup": int(user[2]),
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    for each in containers(TEMPLATES[name]):
        confined(each)
        writable = {m["mountPath"] for m in each["volumeMounts"] if not m.get("readOnly")}
        state = {"/var/lib/tailrace"} if name == "statefulset/tailrace-worker" else set()
        assert writable == {"/tmp", *state}  # noqa: S108 - in the container


def confined(container: Resource) -> None:
    assert container["image"] == "tailrace"
    assert container["securityContext"] == {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "memory" in container["resources"]["limits"]
    assert {"cpu", "memory"} == set(container["resources"]["requests"])


@pytest.mark.parametrize("name", TEMPLATES)
def test_kubernetes_adds_no_variable_that_the_service_would_refuse(name: str) -> None:
    with pytest.raises(SettingsError, match="TAILRACE_CONSOLE_SERVICE_HOST: unknown setting"):
        load({"TAILRACE_CONSOLE_SERVICE_HOST": "10.0.0.1"})
    assert TEMPLATES[name]["spec"]["enableServiceLinks"] is False


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_pod_finds_its_settings_where_its_command_looks_for_them(name: str) -> None:
    (container,) = containers(TEMPLATES[name])
    (volume,) = [v for v in TEMPLATES[name]["spec"]["volumes"] if "secret" in v]
    assert volume["secret"]["defaultMode"] == 0o440
    (mount,) = [m for m in container["volumeMounts"] if m["name"] == volume["name"]]
    assert mount["mountPath"] == container["workingDir"]
    (generated,) = read("kustomization.yaml")["configMapGenerator"]
    assert container["envFrom"] == [{"configMapRef": {"name": generated["name"]}}]


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_pod_runs_a_command_that_exists(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (container,) = containers(TEMPLATES[name])
    assert run([*container["args"], "--help"]) == 0, capsys.readouterr().err
    shown = capsys.readouterr().out
    given = [word.split("=")[0] for word in container["args"] if word.startswith("--")]
    assert all(re.search(rf"{option}\b", shown) for option in given)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_port_is_the_one_that_the_process_is_told(name: str) -> None:
    (container,) = containers(TEMPLATES[name])
    given = {p["name"]: str(p["containerPort"]) for p in container.get("ports", ())}
    kind = component(TEMPLATES[name])
    if kind == "console":
        assert given == {"http": "8190"}
        assert "--host=0.0.0.0" in container["args"]
        return
    wanted = PORTS.get(kind, {})
    assert given == {p: settings()[f"TAILRACE_{s}_PORT"] for p, s in wanted.items()}
    assert all(settings()[f"TAILRACE_{s}_HOST"] == "0.0.0.0" for s in wanted.values())  # noqa: S104


@pytest.mark.parametrize("name", [n for n in TEMPLATES if not n.startswith("cronjob")])
def test_a_probe_asks_what_is_served_and_a_rebuilding_worker_is_left_alone(name: str) -> None:
    pages = {
        "worker": {"/health", "/ready"},
        "webhook": {"/health", "/ready"},
        "ingest": {"/health", "/ready"},
        "exporter": {"/healthz"},
        "console": {"/static/icon.svg"},
    }[component(TEMPLATES[name])]
    (container,) = containers(TEMPLATES[name])
    asked = {kind: container[kind]["httpGet"] for kind in container if kind.endswith("Probe")}
    assert {"readinessProbe", "livenessProbe"} <= set(asked)
    assert {each["path"] for each in asked.values()} == pages
    assert asked["livenessProbe"]["path"] != "/ready"
    ports = {p["name"] for p in container["ports"]}
    assert {each["port"] for each in asked.values()} <= ports
    if component(TEMPLATES[name]) == "console":
        host = [{"name": "Host", "value": "localhost"}]
        assert all(each["httpHeaders"] == host for each in asked.values())


def test_every_selector_finds_its_pods_and_their_ports() -> None:
    labels = [t["metadata"]["labels"] for t in TEMPLATES.values()]
    for resource in resources():
        spec = resource["spec"]
        selector = spec.get("podSelector", spec.get("selector"))
        if selector is None:
            continue
        wanted = selector.get("matchLabels", selector)
        assert any(is_selected(each, wanted) for each in labels), name_of(resource)
        if template := template_of(resource):
            assert is_selected(template["metadata"]["labels"], wanted)
        if resource["kind"] == "Service":
            (pod,) = [t for t in TEMPLATES.values() if is_selected(t["metadata"]["labels"], wanted)]
            (container,) = containers(pod)
            ports = {p["name"]: p["containerPort"] for p in container["ports"]}
            (port,) = spec["ports"]
            assert ports[port["targetPort"]] == port["port"], name_of(resource)


def test_each_worker_has_a_volume_of_its_own_for_its_state() -> None:
    worker = one("StatefulSet", "tailrace-worker")["spec"]
    (claim,) = worker["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    (container,) = containers(worker["template"])
    mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
    state = Path(mounts[claim["metadata"]["name"]])
    assert Path(told("worker").data_dir).is_relative_to(state)
    assert worker["persistentVolumeClaimRetentionPolicy"] == {
        "whenDeleted": "Retain",
        "whenScaled": "Retain",
    }


def test_there_is_never_a_worker_without_partitions() -> None:
    worker = one("StatefulSet", "tailrace-worker")["spec"]
    assert 1 < worker["replicas"] <= told("worker").partitions


def test_a_worker_has_the_time_to_settle_what_it_has_in_hand() -> None:
    spec = TEMPLATES["statefulset/tailrace-worker"]["spec"]
    settles_s = told("worker").settle_deadline_s + request_s_max(told("worker"))
    assert spec["terminationGracePeriodSeconds"] > settles_s


def test_ingestion_has_the_time_to_answer_what_it_has_in_hand() -> None:
    spec = TEMPLATES["deployment/tailrace-ingest"]["spec"]
    assert spec["terminationGracePeriodSeconds"] > STOP_S > told("ingest").ingest_timeout_s


def test_somebody_takes_usage_while_a_node_is_emptied() -> None:
    budget = one("PodDisruptionBudget", "tailrace-ingest")["spec"]
    ingest = one("Deployment", "tailrace-ingest")["spec"]
    assert budget["maxUnavailable"] < ingest["replicas"]
    assert budget["selector"] == ingest["selector"]


def test_workers_are_taken_away_one_at_a_time() -> None:
    budget = one("PodDisruptionBudget", "tailrace-worker")["spec"]
    worker = one("StatefulSet", "tailrace-worker")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"] == worker["selector"]
    assert worker["updateStrategy"] == {"type": "RollingUpdate"}


def test_the_console_asks_every_worker() -> None:
    worker = one("StatefulSet", "tailrace-worker")["spec"]
    (console,) = containers(TEMPLATES["deployment/tailrace-console"])
    port = settings()["TAILRACE_METRICS_PORT"]
    assert [word for word in console["args"] if word.startswith("--worker=")] == [
        f"--worker=http://tailrace-worker-{n}.{worker['serviceName']}:{port}"
        for n in range(worker["replicas"])
    ]


@pytest.mark.parametrize(("policy", "port"), [("tailrace-pages", 8190), ("tailrace-usage", 8479)])
def test_nobody_reaches_the_pages_but_who_is_named(policy: str, port: int) -> None:
    rules = one("NetworkPolicy", policy)["spec"]["ingress"]
    assert [port["port"] for rule in rules for port in rule["ports"]] == [port]
    assert all(who["podSelector"]["matchLabels"] for rule in rules for who in rule["from"])
    everybody = one("NetworkPolicy", "tailrace-figures")["spec"]["podSelector"]["matchLabels"]
    assert all(is_selected(t["metadata"]["labels"], everybody) for t in TEMPLATES.values())


def kubectl(*arguments: str, cwd: Path = ROOT) -> str:
    """What kubectl says without a cluster."""
    if shutil.which("kubectl") is None:
        not_run("there is no kubectl")
    done = subprocess.run(
        ["kubectl", *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(folder: Path) -> list[Resource]:
    """What kustomize makes of a folder."""
    return list(yaml.safe_load_all(kubectl("kustomize", str(folder))))


@pytest.mark.parametrize("secret", NEEDED)
def test_the_secret_of_the_documentation_holds_every_file_that_its_settings_name(
    secret: str, tmp_path: Path
) -> None:
    typed = [line for block in page("docs/deploy.md").blocks("sh") for line in block.commands]
    (command,) = [line for line in typed if f"secret generic tailrace-{secret} " in line]
    example = BASE / f"{secret}.example.toml"
    shutil.copy(example, tmp_path / f"{secret}.toml")
    for beside in ("postgres-ca.pem", "keys.toml"):
        (tmp_path / beside).touch()
    words = [*shlex.split(command)[1:], "--dry-run=client", "--output=yaml"]
    made = yaml.safe_load(kubectl(*words, cwd=tmp_path))
    named = re.findall(r"/etc/tailrace/([\w.-]+)", example.read_text(encoding="utf-8"))
    assert {"tailrace.toml", *named} == set(made["data"])
    mounted = [t for t in TEMPLATES.values() if secret_of(t) == secret]
    assert mounted
    assert all(c["workingDir"] == "/etc/tailrace" for t in mounted for c in containers(t))


def test_kustomize_composes_the_base() -> None:
    found = rendered(BASE)
    kinds = sorted(r["kind"] for r in found)
    assert kinds == sorted([*(r["kind"] for r in resources()), "ConfigMap"])
    (settled,) = [r for r in found if r["kind"] == "ConfigMap"]
    assert settled["data"] == settings()
    for resource in found:
        kubernetes_validate.validate(dict(resource), VERSIONS[-1], strict=True)
        assert resource["metadata"]["labels"]["app.kubernetes.io/name"] == "tailrace"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """The base where an overlay looks for it; kustomize takes relative paths only."""
    copied = tmp_path / "tailrace" / "deploy" / "kubernetes"
    shutil.copytree(BASE, copied)
    return copied


def test_the_overlay_of_the_documentation_composes(base: Path, tmp_path: Path) -> None:
    (block,) = page("docs/deploy.md").blocks("yaml")
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    (overlay / "kustomization.yaml").write_text(block.text, encoding="utf-8")
    (overlay / "settings.env").write_text("TAILRACE_SOURCE=mine\n", encoding="utf-8")
    found = rendered(overlay)
    (settled,) = [r for r in found if r["kind"] == "ConfigMap"]
    assert settled["data"] == settings() | {"TAILRACE_SOURCE": "mine"}
    made = [template for r in found if (template := template_of(r))]
    for template in made:
        (container,) = containers(template)
        assert container["image"] == "registry.example/tailrace:0.1.0"
        (given,) = container["envFrom"]
        assert given["configMapRef"]["name"] == settled["metadata"]["name"]
    assert len(made) == len(TEMPLATES)


def test_a_console_that_decides_takes_a_file_that_nobody_else_reads(
    base: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "overlay"
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
        "resources: [../tailrace/deploy/kubernetes]\n"
        "components: [../tailrace/deploy/kubernetes/deciding]\n",
        encoding="utf-8",
    )
    assert (base / "deciding").is_dir()
    found = {name_of(r): r for r in rendered(folder)}
    console = found["deployment/tailrace-console"]
    kubernetes_validate.validate(dict(console), VERSIONS[-1], strict=True)
    template = console["spec"]["template"]
    for each in containers(template):
        confined(each)
    assert secret_of(template) == "deciding"
    copied, console_container = containers(template)
    assert copied["command"][:3] == ["install", "-m", "0400"]
    assert f"--secret-file={copied['command'][-1]}" in console_container["args"]
