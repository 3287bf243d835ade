"""The files under `deploy/kubernetes`, and three servers under Compose: they fit together, and what they run runs."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdproof import sync
from tests.unit.test_deploy import COMPOSE, DEPLOY, said

FOLDER = DEPLOY / "kubernetes"
KUSTOMIZATION: dict[str, Any] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
RESOURCES = {name: yaml.safe_load((FOLDER / name).read_text()) for name in KUSTOMIZATION["resources"]}
SERVER: dict[str, Any] = RESOURCES["server.yaml"]["spec"]
POD: dict[str, Any] = SERVER["template"]["spec"]


class _Compose(yaml.SafeLoader):
    """Reads what Compose adds to YAML."""


def _sequence(loader: yaml.SafeLoader, node: yaml.Node) -> list[Any]:
    assert isinstance(node, yaml.SequenceNode)
    return list(loader.construct_sequence(node, deep=True))


_Compose.add_constructor("!override", _sequence)


def containers() -> list[dict[str, Any]]:
    return [*POD["initContainers"], *POD["containers"]]


def test_every_file_is_part_of_the_kustomization() -> None:
    generated = [name for each in KUSTOMIZATION["configMapGenerator"] for name in each["files"]]
    assert {path.name for path in FOLDER.iterdir()} == {"kustomization.yaml", *RESOURCES, *generated}


def test_every_resource_is_what_kubernetes_reads() -> None:
    schemas = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    for resource in RESOURCES.values():
        schemas.validate(resource, schemas.latest_version(), strict=True)


def test_what_a_pod_mounts_selects_and_probes_is_there() -> None:
    claims = {each["metadata"]["name"] for each in SERVER["volumeClaimTemplates"]}
    volumes = {each["name"] for each in POD["volumes"]} | claims
    assert {mount["name"] for each in containers() for mount in each["volumeMounts"]} == volumes
    maps = {each["configMap"]["name"] for each in POD["volumes"] if "configMap" in each}
    assert maps == {each["name"] for each in KUSTOMIZATION["configMapGenerator"]}
    labels = SERVER["template"]["metadata"]["labels"]
    assert SERVER["selector"]["matchLabels"] == labels
    assert RESOURCES["service.yaml"]["spec"]["selector"] == labels
    assert RESOURCES["network-policy.yaml"]["spec"]["podSelector"]["matchLabels"] == labels
    [server] = POD["containers"]
    said(server["args"])
    assert {each["name"] for each in server["ports"]} == {"http"}
    for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert server[kind]["httpGet"]["port"] == "http"
        assert server[kind]["httpGet"]["path"] in {"/healthz", "/readyz"}


def test_no_container_has_rights_that_it_does_not_need() -> None:
    assert POD["securityContext"]["runAsNonRoot"]
    assert not POD["automountServiceAccountToken"]
    user = re.search(r"^USER (\d+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert user is not None
    assert POD["securityContext"]["runAsUser"] == int(user[1])
    for each in containers():
        rights = each["securityContext"]
        assert rights["readOnlyRootFilesystem"]
        assert not rights["allowPrivilegeEscalation"]
        assert rights["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.slow
def test_what_runs_before_the_server_makes_one_token_however_often_it_runs(tmp_path: Path) -> None:
    for name in ("config.yaml", "prepare.sh"):
        shutil.copy(FOLDER / name, tmp_path / name)
    home = tmp_path / "home"
    home.mkdir()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for _ in range(2):
        command = ["sh", str(tmp_path / "prepare.sh")]
        environment = {"PATH": path, "HOLDPROOF_HOME": str(home)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "", "the secret is not in the log of the container"
    token = home / "first-token"
    assert token.stat().st_mode & 0o077 == 0
    with sync.open(home) as store:
        assert [each.name for each in store.tokens.list().items] == ["ops"]
        assert store.tokens.authenticate(json.loads(token.read_text())["secret"]).name == "ops"
        assert store.context.settings.backups.folder == "/backups"


def test_three_servers_have_a_home_and_a_port_each() -> None:
    nodes = yaml.load((DEPLOY / "compose.three-nodes.yaml").read_text(), Loader=_Compose)
    services = [COMPOSE["services"]["holdproof"], *nodes["services"].values()]
    homes = [volume.split(":")[0] for each in services for volume in each["volumes"]]
    ports = [re.sub(r"\$\{\w+:-(\d+)\}", r"\1", port) for each in services for port in each["ports"]]
    assert len({*homes}) == len({*ports}) == len(services) == 3
    assert {*homes} <= {*COMPOSE["volumes"], *nodes["volumes"]}
    assert all(port.startswith("127.0.0.1:") for port in ports)
    for each in nodes["services"].values():
        assert each["extends"]["service"] in COMPOSE["services"]
