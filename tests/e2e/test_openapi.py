"""The OpenAPI document against the server it describes: schemathesis sends what fits it and what does not."""

import os
from collections.abc import Iterator
from typing import Any, Final

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

import holdproof
from holdproof.server import ServerSettings, create_app, serve
from tests.web import Web, running

WALKS = int(os.environ.get("HOLDPROOF_WALKS", "1"))
LEFT_OUT: Final = (
    *("/v1/events", "/v1/watch/follow"),  # do not end
    *("/v1/escalations/wait", "/v1/idempotency/once", "/v1/sagas/compensate"),  # wait for somebody
    *("/v1/lockdown/lock", "/v1/lockdown/unlock"),  # nothing else would be answered afterwards
    *("/v1/witness/ask", "/v1/archive/push", "/v1/archive/restore", "/v1/timestamps/create"),  # ask other servers
    "/v1/anchors/create",
    *("/v1/memory/checkpoint_memory", "/v1/memory/restore_memory"),
)


def document() -> dict[str, Any]:
    return create_app(holdproof.open(url=":memory:"), parts=serve.parts(console=False)).openapi()


schema = schemathesis.openapi.from_dict(document()).exclude(path=list(LEFT_OUT))
if WALKS == 1:  # what reads is asked in one way only, and not every bound is tried
    schema = schema.exclude(operation_id_regex="_post$")
    schema.config.phases.update(phases=["fuzzing"])


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with running(tmp_path_factory.mktemp("openapi") / "home", ServerSettings(rate_s=0, sweep_s=0)) as web:
        web.token = web.store.tokens.create("schemathesis").secret
        yield web


def excluded(case: Any) -> list[Any]:
    """The checks that cannot hold for a request."""
    checks = [positive_data_acceptance]  # which names and numbers make sense is the store's to say
    if any(isinstance(value, list) and len(value) < 2 for value in (case.query or {}).values()):
        # A query string says `[5]` as it says `5`, and does not say `[]` at all: the server sees nothing wrong.
        checks.append(negative_data_rejection)
    return checks


@schema.parametrize()
@settings(max_examples=2 * WALKS, deadline=None, database=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_one_that_the_document_describes(web: Web, case: Any) -> None:
    case.call_and_validate(
        base_url=web.listening.address,
        headers={"Authorization": f"Bearer {web.token}"},
        excluded_checks=excluded(case),
    )
