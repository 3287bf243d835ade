"""How the command line reaches a server."""

import pytest

from holdproof.cli.call import sends_in_clear


@pytest.mark.parametrize(
    ("address", "in_clear"),
    [
        ("http://127.0.0.1:8000", False),
        ("http://[::1]:8000", False),
        ("http://localhost", False),
        ("https://store.example", False),
        ("http://store.example:8000", True),
        ("http://10.0.0.7", True),
        ("http://localhost.example", True),
    ],
)
def test_a_token_for_another_machine_over_http_is_noticed(address: str, in_clear: bool) -> None:
    assert sends_in_clear(address) is in_clear
