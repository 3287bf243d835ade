"""Alert rules and the dashboard: they ask for numbers that the server has, and are what Prometheus and Grafana read."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

_ROOT = Path(__file__).resolve().parents[2]
_FOLDER = _ROOT / "deploy" / "monitoring"
_SERVER = _ROOT / "src" / "holdproof" / "server"
_METRIC = re.compile(r"holdproof_[a-z_]+")


def exported() -> set[str]:
    """The names of all numbers, as the server's source writes them; a histogram has three."""
    source = "".join(
        (_SERVER / name).read_text(encoding="utf-8")
        for name in ("health.py", "metrics.py", "tenant_metrics.py", "tenants.py")
    )
    names = set(re.findall(r'"(holdproof_[a-z_]+)"', source))
    return names | {f"{name}_{part}" for name in names for part in ("bucket", "sum", "count")}


def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load((_FOLDER / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    return list(group["rules"])


def panels() -> list[dict[str, Any]]:
    return list(json.loads((_FOLDER / "dashboard.json").read_text(encoding="utf-8"))["panels"])


def test_every_number_that_is_asked_for_is_one_that_the_server_has() -> None:
    asked = [rule["expr"] for rule in rules()] + [panel["targets"][0]["expr"] for panel in panels()]
    names = {name for expression in asked for name in _METRIC.findall(expression)}
    assert len(names) > 12
    assert names <= exported()


def test_every_alert_says_what_is_wrong_and_the_guide_what_to_do() -> None:
    guide = (_ROOT / "docs" / "operate" / "monitoring.md").read_text(encoding="utf-8")
    for rule in rules():
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert f"`{rule['alert']}`" in guide


def test_every_panel_has_a_place_and_a_number_of_its_own() -> None:
    assert len({panel["id"] for panel in panels()}) == len(panels())
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels()}) == len(panels())


def test_promtool_accepts_the_rules() -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed: it comes with the package prometheus")
    done = subprocess.run(
        [program, "check", "rules", _FOLDER / "alerts.yaml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
