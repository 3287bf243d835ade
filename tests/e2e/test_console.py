"""The console on a real port: every page, what it shows, who may act, and that nobody else can."""

import io
import re
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from holdproof import errors
from holdproof.db import sql
from holdproof.model.storage import TelemetryEvent
from holdproof.model.times import later
from holdproof.server.middleware import HEADERS
from holdproof.upkeep.verification import offline
from tests.consoles import TRACE, Scene, populate, question
from tests.web import Web, running

HTML = {"accept": "text/html"}
OF_AUDITORS = ("/evidence/verify", "/evidence/check")
"""What auditors may send, which changes nothing."""
EVIL = "<script>alert(1)</script>\"'{{7*7}}&amp;%00../%2e"


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with running(tmp_path_factory.mktemp("console") / "home") as web:
        yield web


@pytest.fixture(scope="module")
def scene(web: Web) -> Scene:
    return populate(web.store)


@pytest.fixture(scope="module")
def operator(web: Web, scene: Scene) -> httpx.Client:
    del scene
    return web.logged_in(web.store.logins.create_link(name="Ada").secret)


@pytest.fixture(scope="module")
def auditor(web: Web, scene: Scene) -> httpx.Client:
    del scene
    return web.logged_in(web.store.logins.create_link(name="Eve", role="auditor").secret)


class Page(HTMLParser):
    """What a page is made of: its text, its forms with their fields, its links; and nothing inline."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.forms: list[tuple[str, dict[str, str]]] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        assert not any(name == "style" or name.startswith("on") for name in given), (tag, given)
        assert tag != "style"
        if tag == "script":
            assert given["src"].startswith("/static/")
        if tag == "form" and given.get("method") == "post":
            self.forms.append((given["action"], {}))
        if tag == "input" and given.get("type") == "hidden" and self.forms:
            self.forms[-1][1][given["name"]] = given["value"]
        if tag == "a":
            self.links.append(given["href"])

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def page(client: httpx.Client, path: str, status: int = 200) -> Page:
    answer = client.get(path, headers=HTML)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-security-policy"] == HEADERS["Content-Security-Policy"]
    return Page(answer.text)


def token(client: httpx.Client) -> str:
    return next(fields["csrf"] for _, fields in page(client, "/inbox").forms if "csrf" in fields)


def post(client: httpx.Client, path: str, **fields: Any) -> httpx.Response:
    return client.post(path, data={"csrf": token(client), **fields}, headers=HTML)


def fresh(web: Web, **more: Any) -> tuple[int, str]:
    """A question of an agent of its own, and its flow."""
    name = f"agent-{web.store.flows.start('treasury-rebalancer').flow_id[-12:]}"
    web.store.agents.register(name, version="1.0.0")
    flow_id = web.store.flows.start(name, flow_type="fresh").flow_id
    web.store.flows.transition(flow_id, "RUNNING")
    web.store.contexts.put(flow_id, {"limit_eur": 25_000})
    return web.store.escalations.request(flow_id, **{**question(), **more}).id, flow_id


PAGES = {
    "/inbox": ("Rebalance exceeds the daily limit by 68 %", "high impact", "Two invoices share one number"),
    "/inbox/decided": ("Supplier changed its bank account", "approved with changes", "operator:Ada"),
    "/inbox/decided?by=Ada": ("Supplier changed its bank account",),
    "/inbox/decided?by=nobody": ("Nothing is like that",),
    "/inbox/{grave}": ("limit_eur", "25000", "unchanged", "mean-variance", "1 of 3 escalations", "0.87"),
    "/inbox/{decided}": ("Already decided: approved with changes", "by operator:Ada", "verified by phone"),
    "/flows": ("rebalance", "month-end", "waiting escalation", "child"),
    "/flows?q=month&status=RUNNING": ("month-end",),
    "/flows/flow?id={parent}": ("match-invoices", "chase-payments", "ledger/2026-11", "open_invoices"),
    "/flows/flow?id={done}": ("quote", "order", "order.filled", "completed"),
    "/agents": ("treasury-rebalancer", "support-triage", "three wrong refunds"),
    "/agents/agent?id=treasury-rebalancer": ("orders_per_day", "day_volume_eur", "2 of 3 left", "v2", "GOOD"),
    "/evidence": ("eval-2", "VALID", "judge", "ed25519", "Verify now"),
    "/evidence/evaluation?id=eval-1": ("hedge-1", "h_delta", "signed by a judge"),
    "/memory": ("market/dax", "before the fed", "Where the graph begins"),
    "/memory?q=flat": ("market/eurusd",),
    "/memory?prefix=market/": ("No folder below", "market/dax", "that begin with market/"),
    "/memory?prefix=nothing": ("No id begins with nothing",),
    "/memory/object?id=market/dax": ("18870", "History"),
    "/memory/object?id=market/dax&old=1&new=2": ("19120", "18870", "content.trend"),
    "/memory/snapshots": ("before the fed", "what is there now"),
    "/telemetry": ("span", "duration_ms"),
    f"/telemetry/trace?id={TRACE}": ("POST /orders", "5 spans in 412 ms"),
    "/health": ("entries in the log", "Throughput", "WAL", "migrations applied", "Latencies", "Entries in the log"),
    "/health?range=1h": ("transitions by the minute", "Database, MiB"),
    "/health?range=30d": ("by the day",),
    "/health?range=all": ("by the day", "measured every hour"),
}


@pytest.mark.parametrize("path", PAGES)
def test_a_page_shows_what_there_is(operator: httpx.Client, auditor: httpx.Client, scene: Scene, path: str) -> None:
    where = path.format(**vars(scene)) if "{" in path else path
    for client in (operator, auditor):
        found = page(client, where)
        for words in PAGES[path]:
            assert words in found.text
        assert all(fields.get("csrf") for _, fields in found.forms)
    assert {action for action, _ in page(auditor, where).forms} <= {"/logout", "/namespace", *OF_AUDITORS}


def test_a_number_of_flows_in_trouble_leads_to_exactly_those(tmp_path: Path) -> None:
    with running(tmp_path / "home") as web:
        store = web.store
        store.agents.register("trader", version="1.0.0")
        for name in ("lost", "half", "at work", "declined"):
            store.flows.start("trader", flow_id=name, flow_type=f"flow {name}")
            store.flows.transition(name, "RUNNING")
        store.flows.lease("lost", "first", lease_s=0.01)
        store.flows.lease("at work", "second", lease_s=600)
        store.sagas.mark_dirty("half", "pay", {"paid": 7})
        for name in ("half", "declined"):
            store.flows.transition(name, "FAILED")
        time.sleep(0.05)
        client = web.logged_in()
        for start in ("/health", "/today"):
            links = page(client, start).links
            for trouble, flow in (("ORPHANED", "flow lost"), ("DIRTY", "flow half")):
                [link] = [each for each in links if f"trouble={trouble}" in each]
                text = page(client, link).text
                assert "1 match" in text
                assert [each for each in ("lost", "half", "at work", "declined") if f"flow {each}" in text] == [
                    flow.removeprefix("flow ")
                ]
                assert [each["flow_id"] for each in client.get(link.replace("/flows", "/flows.json", 1)).json()] == [
                    flow.removeprefix("flow ")
                ]


def test_every_link_of_the_console_leads_somewhere(operator: httpx.Client, scene: Scene) -> None:
    waiting, met = [f"/inbox/{scene.grave}", "/inbox", "/memory", "/evidence", "/flows"], set[str]()
    while waiting:
        path = waiting.pop()
        if path in met or len(met) > 60:
            continue
        met.add(path)
        found = operator.get(path, headers=HTML)
        assert found.status_code == 200, (path, found.text[-400:])
        if found.headers["content-type"].startswith("text/html"):
            links = [link for link in Page(found.text).links if link.startswith("/")]
            waiting += [link for link in links if not re.match(r"/flows/flow|/static", link)][:15]
    assert len(met) >= 15


def test_what_was_measured_before_the_server_began_is_on_the_page(operator: httpx.Client, web: Web) -> None:
    measure = sql("INSERT INTO store_growth (hour, at, entries, bytes) VALUES (:hour, :at, 7, 4096)")
    at = later(web.store.read(lambda tx: tx.now), -5 * 86_400.0)
    web.store.write(lambda tx: tx.execute(measure, hour=at[:13], at=at))
    says = f"{at[:16].replace('T', ' ')} UTC: 7 entries"
    assert says in operator.get("/health?range=7d", headers=HTML).text
    assert says in operator.get("/health?range=all", headers=HTML).text
    assert says not in operator.get("/health?range=24h", headers=HTML).text


def test_today_says_when_the_store_was_verified_last_and_that_nobody_did_for_a_week(
    operator: httpx.Client, web: Web
) -> None:
    web.store.verify.run()
    assert re.search(r"verified (now|\d+ s ago)", page(operator, "/today").text)
    [(verified, id)] = web.store.read(lambda tx: tx.all(_LAST_VERIFIED))
    move = sql("UPDATE verifications SET verified_at = :at WHERE id = :id")
    web.store.write(lambda tx: tx.execute(move, at=later(verified, -9 * 86_400.0), id=id))
    assert "9 days since the last verification" in page(operator, "/today").text
    web.store.write(lambda tx: tx.execute(move, at=verified, id=id))


_LAST_VERIFIED = sql("SELECT verified_at, id FROM verifications ORDER BY id DESC LIMIT 1")


def test_an_empty_store_teaches_what_goes_where(operator: httpx.Client) -> None:
    # A namespace exists as soon as something happened in it; a typo is told, and shows no empty page.
    post(operator, "/namespace", ns="emtpy")
    assert "There is no namespace emtpy" in page(operator, "/inbox").text
    operator.cookies.set("holdproof-ns", "empty")
    wanted = {
        "/inbox": "Nothing waits for you",
        "/inbox/decided": "No answer was given yet",
        "/escalations": "Nothing was asked yet",
        "/calls": "No call was made under a key",
        "/flows": "No flow was opened yet",
        "/agents": "No agent",
        "/evidence": "No evaluation was submitted yet",
        "/memory": "Nothing is known yet",
        "/memory/snapshots": "No snapshot was signed yet",
    }
    for path, words in wanted.items():
        assert words in page(operator, path).text
    assert "No event is like that" in page(operator, "/telemetry?type=nothing").text
    operator.cookies.delete("holdproof-ns")


@pytest.mark.parametrize(
    "path", ["/inbox/999", "/flows/flow?id=x", "/agents/agent?id=x", "/evidence/evaluation?id=x", "/jobs/99"]
)
def test_what_is_not_there_is_a_page_that_says_so(operator: httpx.Client, path: str) -> None:
    assert "Back to the console" in page(operator, path, 404).text


# --- who may -----------------------------------------------------------------------------------------------------

ACTS = {
    "/inbox/{grave}/review": {"choice": "approve", "part": "0", "comment": "x"},
    "/inbox/{grave}/decide": {"choice": "approve", "part": "0", "comment": "x", "seen": "1.2"},
    "/flows/cancel": {"id": "{parent}", "reason": "x", "confirmed": "yes"},
    "/flows/recover": {"confirmed": "yes"},
    "/agents/status": {"id": "treasury-rebalancer", "status": "SUSPENDED", "reason": "x", "confirmed": "yes"},
    "/evidence/verify": {},
    "/evidence/check": {},
    "/memory/snapshot": {"message": "x"},
    "/memory/rollback": {"to": "HEAD", "reason": "x", "confirmed": "yes"},
    "/memory/image": {},
    "/health/sweep": {},
    "/namespace": {"ns": "other"},
}


@pytest.mark.parametrize("path", ACTS)
def test_a_form_without_the_secret_of_its_session_is_refused(
    web: Web, operator: httpx.Client, scene: Scene, path: str
) -> None:
    where, fields = path.format(**vars(scene)), {k: v.format(**vars(scene)) for k, v in ACTS[path].items()}
    for more in ({}, {"csrf": "0" * 64}):
        answer = operator.post(where, data={**fields, **more}, headers=HTML)
        assert (answer.status_code, "secret of its session" in answer.text) == (403, True)
    assert any((each.code, each.path) == ("access.forged", where) for each in web.denied())
    assert web.store.escalations.get(scene.grave).status == "PENDING"


@pytest.mark.parametrize("path", [path for path in ACTS if path not in (*OF_AUDITORS, "/namespace")])
def test_an_auditor_is_refused_by_the_server_not_only_by_the_page(
    web: Web, auditor: httpx.Client, scene: Scene, path: str
) -> None:
    where, fields = path.format(**vars(scene)), {k: v.format(**vars(scene)) for k, v in ACTS[path].items()}
    if path == "/memory/rollback":
        fields["to"] = web.store.snapshots.list().items[0].cid
    answer = post(auditor, where, **fields)
    if path.endswith("/review"):  # it only shows what an answer would be
        assert answer.status_code == 200
    elif path in ("/flows/recover", "/memory/image"):
        assert "may not use" in page(auditor, answer.headers["location"]).text
    else:
        assert answer.status_code == 403
        assert any((each.code, each.path) == ("access.forbidden", where) for each in web.denied())
    assert web.store.escalations.get(scene.grave).status == "PENDING"
    assert web.store.agents.get("treasury-rebalancer").status == "ACTIVE"
    assert web.store.flows.get(scene.parent).status == "RUNNING"


def test_nobody_and_agents_have_no_console(web: Web, scene: Scene) -> None:
    del scene
    nobody = web.client()
    assert nobody.get("/", headers=HTML).headers["location"] == "/login"
    assert "Log in" in page(nobody, "/inbox", 401).text
    agent = web.client(f"robot:{web.store.agents.register('robot', version='1.0.0').token}")
    assert "for operators and auditors" in page(agent, "/inbox", 403).text


def test_who_is_bound_to_a_namespace_sees_no_other(web: Web, scene: Scene) -> None:
    made = web.store.tokens.create("desk", role="operator", ns="team")
    client = web.logged_in(web.store.logins.create_link(token_id=made.token.token_id).secret)
    assert "Nothing waits for you" in page(client, "/inbox").text
    assert page(client, f"/inbox/{scene.grave}", 404).text
    post(client, "/namespace", ns="main")
    client.cookies.set("holdproof-ns", "main")
    assert "Nothing waits for you" in page(client, "/inbox").text
    assert "/health" not in page(client, "/inbox").links
    assert page(client, "/health", 403).text


def test_who_has_some_nouns_only_sees_these(web: Web, scene: Scene) -> None:
    for noun, path, others in (
        ("flows", f"/flows/flow?id={scene.parent}", ("/inbox", "/agents", "/memory", "/health", "/evidence")),
        ("escalations", f"/inbox/{scene.grave}", ("/flows", "/agents", "/memory", "/telemetry")),
        ("objects", "/memory", ("/inbox", "/flows", "/memory/snapshots")),
        ("agents", "/agents/agent?id=treasury-rebalancer", ("/inbox", f"/flows/flow?id={scene.parent}")),
        ("evaluations", "/evidence", ("/inbox", "/health")),
    ):
        made = web.store.tokens.create("some", role="operator", resources=[noun])
        client = web.logged_in(web.store.logins.create_link(token_id=made.token.token_id).secret)
        assert page(client, path).text
        for other in others:
            assert page(client, other, 403).text


# --- answering ---------------------------------------------------------------------------------------------------


def test_an_answer_takes_two_steps_and_a_reason(web: Web, operator: httpx.Client) -> None:
    number, flow_id = fresh(web)
    for fields, words in (
        ({"choice": "approve", "part": "0"}, "say why"),
        ({"choice": "approve", "comment": "fine"}, "tick what you authorise"),
        ({"part": "0", "comment": "fine"}, "choose whether"),
        ({"choice": "approve", "part": "0", "value-0": "{nonsense", "comment": "fine"}, "is no number"),
    ):
        answer = post(operator, f"/inbox/{number}/review", **fields)
        assert answer.status_code in (400, 422)
        assert words in answer.text
        if "part" in fields:
            assert "checked" in answer.text
    review = post(
        operator,
        f"/inbox/{number}/review",
        **{"choice": "approve", "part": ["0", "1"], "value-0": "30000", "value-1": "in two orders", "comment": "less"},
    )
    told = Page(review.text)
    assert "You authorise 2 of 6 parts" in told.text
    assert "approved with changes" in told.text
    assert web.store.escalations.get(number).status == "PENDING"
    [fields] = [fields for action, fields in told.forms if action.endswith("/decide")]
    done = operator.post(
        f"/inbox/{number}/decide",
        data={**fields, "part": ["0", "1"], "value-0": "30000", "value-1": "in two orders"},
        headers=HTML,
    )
    # The next one opens by itself, until nothing is left.
    opened = done.headers["location"]
    assert re.fullmatch(r"/inbox/\d+", opened)
    kept = web.store.escalations.get(number)
    assert (kept.human_decision, kept.answer) == ("MODIFY", {"limit_eur": 30000, "note": "in two orders"})
    assert (kept.resolved_by, kept.comment) == ("operator:Ada", "less")
    assert web.store.flows.get(flow_id).status == "RUNNING"
    assert "Recorded: approved with changes" in page(operator, opened).text
    assert "Already decided" in page(operator, f"/inbox/{number}").text
    assert "Recorded" not in page(operator, f"/inbox/{number}").text


def whole(web: Web, number: int) -> list[str]:
    return [str(each) for each in range(len(web.store.escalations.get(number).proposal) + 2)]


def test_everything_ticked_as_it_is_is_no_change(web: Web, operator: httpx.Client) -> None:
    number, _ = fresh(web, context=None)
    given = {"choice": "approve", "part": whole(web, number), "comment": "yes", "seen": "1.0"}
    assert post(operator, f"/inbox/{number}/decide", **given).status_code == 303
    answer = web.store.escalations.get(number)
    assert (answer.human_decision, answer.answer) == ("OVERRIDE", None)


def test_a_question_that_proposes_nothing_is_no_value_to_edit(web: Web, operator: httpx.Client) -> None:
    reason = "May I go on with the month? " + "It closes on Friday, and two suppliers wait for their money. " * 8
    number, flow_id = fresh(web, proposal={}, reason=reason, impact="LOW_IMPACT")
    text = page(operator, f"/inbox/{number}").text
    assert "proposes no value" in text
    assert 'name="value-0"' not in operator.get(f"/inbox/{number}", headers=HTML).text
    # The whole of what is answered can be read, however long it is.
    assert reason.strip() in text
    post(operator, f"/inbox/{number}/decide", choice="approve", part="0", comment="", seen="1.0")
    answered = web.store.escalations.get(number)
    assert (answered.outcome, answered.proposal) == ("approved as proposed", {})
    assert web.store.flows.get(flow_id).status == "RUNNING"


@pytest.mark.parametrize(
    ("path", "place"),
    [("/escalations", "/inbox"), ("/holds", "/retention"), ("/calls", "/health"), ("/agents", "/agents")],
)
def test_a_page_of_an_address_of_its_own_is_marked_in_the_navigation(
    operator: httpx.Client, path: str, place: str
) -> None:
    assert re.findall(r'<a href="([^"]+)" aria-current="page"', operator.get(path, headers=HTML).text) == [place]


def test_what_cannot_be_seen_is_named_and_answered_by_who_says_to_have_read_it(
    web: Web, operator: httpx.Client
) -> None:
    amount = "\u202e000.001"
    number, _ = fresh(web, proposal={"amount": amount, "all": [amount]}, context=None)
    shown = operator.get(f"/inbox/{number}", headers=HTML).text
    assert "\u202e" not in shown
    assert 'value="[U+202E]000.001"' in shown
    assert "right-to-left override" in shown
    assert "[U+202E]000.001" in operator.get("/inbox", headers=HTML).text
    given = {"choice": "approve", "part": ["0", "1"], "comment": "seen", "seen": "1.0"}
    answer = post(operator, f"/inbox/{number}/review", **given)
    assert answer.status_code in (400, 422)
    assert "cannot be seen" in Page(answer.text).text
    assert post(operator, f"/inbox/{number}/decide", **given).status_code in (400, 422)
    review = post(operator, f"/inbox/{number}/review", **given, marks="read")
    assert "\u202e" not in review.text
    [fields] = [fields for action, fields in Page(review.text).forms if action.endswith("/decide")]
    decided = operator.post(f"/inbox/{number}/decide", data={**fields, "part": ["0", "1"]}, headers=HTML)
    assert decided.status_code == 303
    # Read and approved: exactly what was proposed, with all its characters.
    kept = web.store.escalations.get(number)
    assert (kept.human_decision, kept.proposal["amount"]) == ("OVERRIDE", amount)


@pytest.mark.parametrize(
    ("choice", "status", "status_after"), [("reject", "REJECTED", "FAILED"), ("cancel", "CANCELLED", "CANCELLED")]
)
def test_a_question_is_refused_or_its_flow_cancelled(
    web: Web, operator: httpx.Client, choice: str, status: str, status_after: str
) -> None:
    number, flow_id = fresh(web)
    given = {"choice": choice, "comment": "too risky", "seen": "1.0"}
    assert "too risky" in post(operator, f"/inbox/{number}/review", **given).text
    post(operator, f"/inbox/{number}/decide", **given)
    assert (web.store.escalations.get(number).status, web.store.flows.get(flow_id).status) == (status, status_after)


def test_a_quorum_is_answered_person_by_person_and_the_agent_is_asked_back(web: Web, operator: httpx.Client) -> None:
    for name in ("Ada", "Bob", "Cem"):
        web.store.people.put(name, groups=["desk"])
    number, flow_id = fresh(web, approvers="2 of desk")
    assert "0 of 2 approved; waiting for Ada, Bob, Cem" in page(operator, f"/inbox/{number}").text
    told = Page(post(operator, f"/inbox/{number}/review", choice="approve", part="0", comment="yes").text)
    [fields] = [fields for action, fields in told.forms if action.endswith("/decide")]
    post(operator, f"/inbox/{number}/ask", text="which venue?")
    assert web.store.flows.get(flow_id).status == "WAITING_ESCALATION"
    web.store.escalations.reply(number, "Xetra")
    # What was reviewed is not what is asked now: it is shown again.
    data = {**fields, "part": ["0"]}
    assert operator.post(f"/inbox/{number}/decide", data=data, headers=HTML).status_code == 200
    assert web.store.escalations.approvals(number).answers == ()
    shown = web.store.escalations.approvals(number).shown_hash
    done = operator.post(f"/inbox/{number}/decide", data={**data, "shown": shown}, headers=HTML)
    assert done.status_code == 303
    after = page(operator, f"/inbox/{number}").text
    assert "others still have to answer" in after
    assert "1 of 2 approved; waiting for Bob, Cem" in after
    assert "which venue?" in after
    again = operator.post(f"/inbox/{number}/decide", data={**data, "shown": shown}, headers=HTML)
    assert again.status_code == 303
    assert "Your answer was not taken" in page(operator, f"/inbox/{number}").text
    post(operator, f"/inbox/{number}/reassign", approvers="1 of Bob")
    assert web.store.escalations.get(number).approvers == "1 of Bob"


def test_the_second_operator_is_told_who_was_first(web: Web, operator: httpx.Client) -> None:
    number, _ = fresh(web)
    web.store.escalations.resolve(number, "reject", by="operator:Bob", comment="no")
    answer = post(operator, f"/inbox/{number}/decide", choice="approve", part="0", comment="yes", seen="1.0")
    assert answer.status_code == 303
    told = page(operator, f"/inbox/{number}").text
    assert "Your answer was not taken" in told
    assert "Already decided: rejected by operator:Bob" in told


def test_an_answer_after_the_deadline_is_not_taken(web: Web, operator: httpx.Client) -> None:
    number, _ = fresh(web, deadline_s=0.001)
    until = page(operator, f"/inbox/{number}")
    assert "The deadline has passed" in until.text or "Already decided" in until.text
    assert not any(action.endswith("/review") for action, _ in until.forms)
    post(operator, f"/inbox/{number}/decide", choice="approve", part="0", comment="yes", seen="1.0")
    assert "Your answer was not taken" in page(operator, f"/inbox/{number}").text
    assert web.store.escalations.get(number).resolved_by == "deadline"


def test_who_saw_another_state_is_shown_the_new_one_first(web: Web, operator: httpx.Client) -> None:
    number, flow_id = fresh(web)
    web.store.contexts.put(flow_id, {"limit_eur": 99})
    given = {"choice": "approve", "part": "0", "comment": "yes", "seen": "1.0"}
    again = post(operator, f"/inbox/{number}/decide", **given)
    assert (again.status_code, "has changed since you looked" in again.text) == (200, True)
    assert web.store.escalations.get(number).status == "PENDING"
    assert post(operator, f"/inbox/{number}/decide", **{**given, "seen": "2.0"}).status_code == 303


# --- the other acts ----------------------------------------------------------------------------------------------


def test_a_flow_is_proven_and_cancelled(web: Web, operator: httpx.Client) -> None:
    number, flow_id = fresh(web)
    del number
    bundle = operator.get(f"/flows/bundle?id={flow_id}")
    assert bundle.headers["content-disposition"].startswith("attachment")
    assert zipfile.is_zipfile(io.BytesIO(bundle.content))
    assert offline.check(bundle.content).verdict.word == "VALID"
    asked = post(operator, "/flows/cancel", id=flow_id)
    assert "Cancel this flow?" in asked.text
    assert web.store.flows.get(flow_id).status == "WAITING_ESCALATION"
    done = post(operator, "/flows/cancel", id=flow_id, reason="not needed", confirmed="yes")
    assert "The flow is CANCELLED now" in page(operator, done.headers["location"]).text
    assert web.store.flows.transitions(flow_id)[-1].reason == "not needed (operator:Ada)"


def test_an_agent_is_suspended_with_a_reason_and_activated_again(web: Web, operator: httpx.Client) -> None:
    web.store.agents.register("odd/../name", version="1.0.0")
    assert "What may odd/../name do?" in post(operator, "/agents/status", id="odd/../name", status="SUSPENDED").text
    assert web.store.agents.get("odd/../name").status == "ACTIVE"
    given = {"id": "odd/../name", "status": "SUSPENDED", "reason": "wrong twice", "confirmed": "yes"}
    done = post(operator, "/agents/status", **given)
    assert "odd/../name is SUSPENDED now" in page(operator, done.headers["location"]).text
    assert web.store.agents.get("odd/../name").suspension_reason == "wrong twice (operator:Ada)"
    post(operator, "/agents/status", **{**given, "status": "ACTIVE"})
    assert web.store.agents.get("odd/../name").status == "ACTIVE"


def test_the_list_of_agents_says_what_each_used_in_its_time(web: Web, operator: httpx.Client) -> None:
    web.store.agents.register("spender", version="1.0.0")
    now = web.store.flows.start("spender").created_at
    facts = {"agent": "spender", "input_tokens": 1_200, "output_tokens": 34, "cost_usd": 0.25}
    moments = (now, later(now, -60.0), later(now, -2 * 86_400.0))
    web.store.telemetry.append([TelemetryEvent("span", at, facts) for at in moments])
    day, week = (page(operator, f"/agents?range={word}") for word in ("24h", "7d"))
    assert "2 468 0.5" in day.text
    assert "3 702 0.75" in week.text
    assert "/cost?by=agent&range=7d" in week.links


def ended(client: httpx.Client, path: str) -> Page:
    """The page of a job once it is over."""
    for _ in range(600):
        answer = client.get(path, headers=HTML)
        if "data-poll" not in answer.text:
            return Page(answer.text)
    raise AssertionError("it does not end")


def test_verifying_is_watched_and_its_outcome_stays(web: Web, operator: httpx.Client, auditor: httpx.Client) -> None:
    for client in (operator, auditor):
        begun = post(client, "/evidence/verify", full="yes")
        assert begun.status_code == 303
        assert "VALID — everything" in ended(client, begun.headers["location"]).text
    assert "auditor:Eve" in page(operator, "/evidence").text
    assert web.store.lockdown.status() is None


def test_memory_goes_back_to_a_snapshot(web: Web, operator: httpx.Client) -> None:
    web.store.objects.put("plan", type="note", content={"say": "first"})
    said = post(operator, "/memory/snapshot", message="with the first plan")
    assert "is signed" in page(operator, said.headers["location"]).text
    target = web.store.snapshots.list().items[0]
    assert (target.message, target.author) == ("with the first plan", "operator:Ada")
    web.store.objects.put("plan", type="note", content={"say": "second"})
    told = page(operator, f"/memory/diff?old={target.cid}").text
    assert "first" in told
    assert "second" in told
    assert "1 object changes" in post(operator, "/memory/rollback", to=target.cid).text
    assert web.store.objects.get("plan").content == {"say": "second"}
    post(operator, "/memory/rollback", to=target.cid, reason="better before", confirmed="yes")
    assert web.store.objects.get("plan").content == {"say": "first"}


def test_an_image_is_written_and_listed(operator: httpx.Client) -> None:
    begun = post(operator, "/memory/image")
    assert "blocks, up to" in ended(operator, begun.headers["location"]).text
    assert "damaged" not in page(operator, "/memory").text


def test_orphans_are_recovered_or_left_by_name(web: Web, operator: httpx.Client) -> None:
    flow_id = web.store.flows.start("treasury-rebalancer", flow_type="lost").flow_id
    web.store.flows.transition(flow_id, "RUNNING")
    web.store.flows.lease(flow_id, "gone", lease_s=0.001)
    assert "have lost their worker" in post(operator, "/flows/recover").text
    begun = post(operator, "/flows/recover", confirmed="yes")
    assert "no function here runs lost" in ended(operator, begun.headers["location"]).text
    web.store.flows.transition(flow_id, "CANCELLED")


def test_sweeping_says_what_it_put_away(operator: httpx.Client) -> None:
    done = post(operator, "/health/sweep")
    assert "Swept:" in page(operator, done.headers["location"]).text


# --- strangers ---------------------------------------------------------------------------------------------------


def test_nothing_that_somebody_wrote_is_markup(web: Web, operator: httpx.Client) -> None:
    web.store.agents.register(EVIL[:30], version="1.0.0", contract={EVIL: EVIL})
    flow_id = web.store.flows.start(EVIL[:30], flow_type=EVIL).flow_id
    web.store.flows.transition(flow_id, "RUNNING")
    web.store.contexts.put(flow_id, {EVIL: EVIL})
    web.store.audit.record(flow_id, EVIL, detail=EVIL)
    web.store.feedback.record(EVIL[:30], flow_id, status=EVIL, reason=EVIL, score=0.1)
    web.store.objects.put(f"evil/{EVIL}", type="x", content=EVIL)
    number = web.store.escalations.request(
        flow_id, reason=EVIL, context={EVIL: EVIL}, proposal={EVIL: EVIL, "a": EVIL}
    ).id
    given = {"choice": "approve", "part": "0", "comment": EVIL}
    shown = [
        *(
            operator.get(path, headers=HTML).text
            for path in ("/inbox", f"/inbox/{number}", f"/flows/flow?id={flow_id}")
        ),
        operator.get(f"/agents/agent?id={quote(EVIL[:30])}", headers=HTML).text,
        operator.get(f"/memory/object?id={quote('evil/' + EVIL)}", headers=HTML).text,
        post(operator, f"/inbox/{number}/review", **given).text,
    ]
    for text in shown:
        assert "<script>alert" not in text
        assert "alert(1)" in text
        assert "{{7*7}}" in text
        Page(text)
    web.store.escalations.resolve(number, "cancel", by="test")


@pytest.mark.parametrize(
    "text", [EVIL, "' OR 1=1 --", "%", "\0", "x" * 499, "\ud7ff", "9" * 30, "-1", "[]", '*" NEAR(']
)
def test_a_filter_is_only_ever_a_value(operator: httpx.Client, text: str) -> None:
    given = quote(text)
    for path in (
        *(f"/flows?{name}={given}" for name in ("q", "status", "agent", "type", "cursor")),
        *(f"/agents?{name}={given}" for name in ("status", "cursor")),
        *(f"/memory?{name}={given}" for name in ("q", "cursor")),
        *(f"/telemetry?{name}={given}" for name in ("type", "trace", "span", "since", "until")),
        *(f"/inbox?cursor={given}", f"/inbox/decided?cursor={given}", f"/evidence?cursor={given}"),
        *(f"/memory/object?id={given}", f"/memory/object?id=plan&at={given}", f"/memory/object?id=plan&new={given}"),
        *(f"/memory/diff?old={given}", f"/flows/flow?id={given}", f"/flows/bundle?id={given}", f"/inbox/{given}"),
        *(f"/evidence/evaluation?id={given}", f"/telemetry/trace?id={given}", f"/memory/snapshots?cursor={given}"),
    ):
        answer = operator.get(path, headers=HTML)
        assert answer.status_code < 500, (path, answer.text)
        assert "<script>alert" not in answer.text


def test_words_on_a_page_come_from_its_own_session(web: Web, operator: httpx.Client) -> None:
    other = web.logged_in()
    number, _ = fresh(web)
    answer = post(operator, f"/inbox/{number}/decide", choice="reject", comment="no", seen="1.0")
    stolen = answer.cookies.get("holdproof-flash")
    assert stolen
    for value in (stolen, "x.y", "W10=.z", ""):
        other.cookies.set("holdproof-flash", value)
        assert "Recorded" not in page(other, "/inbox").text
    assert "Recorded" in page(operator, "/inbox").text


class DeadWorkerError(BaseException):
    """As if the worker's process ended in the middle of a step."""


def in_doubt(web: Web) -> tuple[int, list[str], threading.Thread]:
    """A flow whose step `pay` was started and never confirmed, as another worker takes it up and asks."""
    runs: list[str] = []

    def pay(order: str) -> None:
        runs.append("pay")
        raise DeadWorkerError

    web.store.agents.register("payer", version="1.0.0")
    with pytest.raises(DeadWorkerError), web.store.flows.run("payer", flow_type="pay", lease_s=0.05) as flow:
        flow.step("pay", pay, "o-17")

    time.sleep(0.2)  # until the dead worker's lease has passed

    def resume() -> None:
        with suppress(errors.ReplayedError), web.store.flows.run(resume=flow.flow_id, lease_s=5) as again:
            again.step("pay", pay, "o-17")

    worker = threading.Thread(target=resume, daemon=True)
    worker.start()
    for _ in range(500):
        waiting = [each for each in web.store.escalations.list(status="PENDING").items if each.flow_id == flow.flow_id]
        if waiting:
            return waiting[0].id, runs, worker
        time.sleep(0.02)
    raise AssertionError("nothing was asked about the step in doubt")


def test_a_step_in_doubt_is_answered_in_its_own_words_at_the_console(web: Web, operator: httpx.Client) -> None:
    number, runs, worker = in_doubt(web)
    asked = web.store.escalations.get(number)
    text = page(operator, f"/inbox/{number}").text
    assert "Step pay is in doubt" in text
    assert "Authorise the ticked parts" not in text
    for words in (
        "It happened",
        "It did not happen: run it",
        "Undo the flow",
        "o-17",
        asked.context["idempotency_key"],
    ):
        assert words in text
    for action in ("review", "decide"):
        answer = post(operator, f"/inbox/{number}/{action}", choice="approve", part="0", comment="go on", seen="0.0")
        assert "a step in doubt is not approved" in answer.text
    typed = {"choice": "happened", "comment": "the bank has it", "result": '{"paid": 500}'}
    assert "is not JSON" in post(operator, f"/inbox/{number}/review", **{**typed, "result": "{paid"}).text
    assert (
        "It happened" in (review := post(operator, f"/inbox/{number}/review", **typed).text) or "it happened" in review
    )
    assert web.store.escalations.get(number).status == "PENDING"
    post(operator, f"/inbox/{number}/decide", **typed, seen="0.0")
    worker.join(30)
    assert runs == ["pay"]
    [step] = web.store.flows.steps(asked.flow_id)
    assert (step.state, step.result) == ("DONE", {"paid": 500})
    assert web.store.escalations.get(number).outcome == "it happened"


def test_a_page_that_says_the_same_is_not_sent_again_and_comes_compressed(web: Web, operator: httpx.Client) -> None:
    # A message of the test before is shown once, and is then gone from the page.
    operator.get("/today", headers=HTML)
    first = operator.get("/today", headers=HTML)
    assert first.headers["content-encoding"] == "gzip"
    again = operator.get("/today", headers={**HTML, "If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    fresh(web)
    changed = operator.get("/today", headers={**HTML, "If-None-Match": first.headers["etag"]})
    assert changed.status_code == 200
    assert changed.headers["etag"] != first.headers["etag"]


def test_styles_and_scripts_are_kept_for_ever_under_their_hash_only(operator: httpx.Client) -> None:
    html = operator.get("/today", headers=HTML).text
    [address] = re.findall(r'href="(/static/console\.css\?v=\w+)"', html)
    lasting = operator.get(address)
    assert "immutable" in lasting.headers["cache-control"]
    bare = operator.get("/static/console.css")
    assert bare.headers["cache-control"] == "no-cache"
    assert operator.get("/static/console.css", headers={"If-None-Match": bare.headers["etag"]}).status_code == 304
    assert operator.get("/static/nothing.css").status_code == 404


def test_a_token_opens_the_console_and_leads_back_to_the_page(web: Web, operator: httpx.Client) -> None:
    token = web.store.tokens.create("night shift", role="operator").secret
    client = web.client()
    asked = client.get("/inbox?agent=a", headers=HTML)
    assert asked.status_code == 401
    forms = [fields for action, fields in Page(asked.text).forms if action == "/login"]
    assert [each["next"] for each in forms] == ["/inbox?agent=a"] * 2
    [form] = [each for each in forms if "passkey" not in each]
    entered = client.post("/login", data={**form, "code": token})
    assert (entered.status_code, entered.headers["location"]) == (303, "/inbox?agent=a")
    assert page(client, "/access").text.count("night shift") >= 1
    agent = web.store.agents.list(limit=1).items[0].agent_id
    wrong = web.store.tokens.create("agent", role="agent", agent_id=agent).secret
    assert web.client().post("/login", data={"code": wrong}).status_code in (401, 403, 422)
    # Ended at the page of access, the session is over at once.
    [session] = [
        each for each in web.store.logins.list().items if each.name == "night shift" and each.kind == "session"
    ]
    assert post(operator, "/access/end", id=session.login_id).status_code == 303
    assert client.get("/today", headers=HTML).status_code == 401
    tokens = [each for each in web.store.tokens.list().items if each.name == "night shift"]
    assert post(operator, "/access/revoke", id=tokens[0].token_id).status_code == 303
    assert web.client().post("/login", data={"code": token}).status_code == 401
