"""A settings file of another user is refused: planted in a shared folder, it could move the store elsewhere."""

import os
from pathlib import Path

import pytest

from holdproof.config import Paths, load
from holdproof.errors import ConfigError


def test_a_settings_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "shared" / ".holdproof"
    project.mkdir(parents=True)
    (project / "config.yaml").write_text("profile: planted\n")
    paths = Paths.find(tmp_path / "home", env={})
    assert load(paths=paths, project=project.parent, env={}).profile == "planted"
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    if os.stat(project).st_uid == 0:
        os.chown(project / "config.yaml", 12345, -1)
    with pytest.raises(ConfigError, match="another user"):
        load(paths=paths, project=project.parent, env={})
    lenient = load(paths=paths, project=project.parent, env={}, strict=False)
    assert (lenient.profile, len(lenient.warnings)) == ("default", 1)
