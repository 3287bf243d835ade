"""Negotiating versions."""

import pytest

from holdproof import errors
from holdproof.model.semver import accepts


@pytest.mark.parametrize(
    ("supported", "version"),
    [
        *(("1.x", version) for version in ("1", "1.0", "1.0.0", "1.99.3", "1.2.3-rc.1", "1.2.3+build.7")),
        *(("1", version) for version in ("1.0.0", "1.7")),
        *(("1.4", version) for version in ("1.4", "1.4.0", "1.5.0", "1.10")),
        *(("1.4.2", version) for version in ("1.4.2", "1.4.3", "1.5.0")),
        ("0.x", "0.1.0"),
    ],
)
def test_a_version_in_the_range_is_accepted(supported: str, version: str) -> None:
    assert accepts(supported, version)


@pytest.mark.parametrize(
    ("supported", "version"),
    [
        *(("1.x", version) for version in ("2.0.0", "0.9.9", "10.0.0")),
        *(("1.4", version) for version in ("1.3.9", "2.4.0", "1")),
        ("1.4.2", "1.4.1"),
        *(("1.x", version) for version in ("", "v1.0", "1.", "1.x", "1.0.0.0", "01.0", "1.-1")),
        *(("1.x", version) for version in ("\u0661.0", " 1.0", "1.0\n")),
    ],
)
def test_a_version_outside_the_range_or_malformed_is_not(supported: str, version: str) -> None:
    assert not accepts(supported, version)


@pytest.mark.parametrize("supported", ["", "x", ">=1", "1.4-rc", "1.4.2.1"])
def test_a_malformed_range_is_refused(supported: str) -> None:
    with pytest.raises(errors.InvalidInputError):
        accepts(supported, "1.0.0")
