"""Self-grow on every backend: the legal steps and no others, the way back, racing callers, a model."""

from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdproof import errors
from holdproof.crypto import canonical
from holdproof.db import sql
from holdproof.executors import SyncExecutor
from holdproof.model.selfgrow import EDGES, IN_USE, GrowthStatus, RollbackToken, Seedling
from holdproof.storage.selfgrow import SelfGrow, steps
from holdproof.testing import FrozenClock
from tests.conformance.membranes import InMemory, OnPostgres, OnSqlite
from tests.conformance.racing import together
from tests.conformance.services import OnMembrane, behind

DAY = 86_400
DATA: canonical.Json = {"prompt": "Be brief.", "weights": [0.5, 1]}
_ALTER = sql("UPDATE self_grow_proposals SET content_hash = 'x' WHERE id = :id")
_FOREIGN = sql("INSERT INTO self_grow_proposals (id, data, status) VALUES ('theirs', 'no json', 'draft')")

Grow = SelfGrow[SyncExecutor]


def validated(grow: Grow, entity: str = "soul") -> str:
    proposal = grow.propose(DATA, context="self", entity=entity, by="k-gent")
    return grow.validate(proposal.id).id


def germinated(grow: Grow, entity: str = "soul") -> Seedling:
    return grow.germinate(validated(grow, entity), by="gardener")


def promoted(grow: Grow, entity: str = "soul", before: str = "Be long.") -> tuple[Seedling, RollbackToken]:
    seedling = germinated(grow, entity)
    return seedling, grow.promote(seedling.id, spec_path="soul.md", spec_content=before)


class Steps(OnMembrane):
    @pytest.fixture
    def grow(self, face: SyncExecutor) -> Grow:
        return SelfGrow(face)

    def test_a_proposal_goes_all_the_way_and_back(self, grow: Grow, clock: FrozenClock) -> None:
        proposal = grow.propose(DATA, context="self", entity="soul", by="k-gent")
        assert (proposal.status, proposal.data, proposal.handle) == ("draft", DATA, "self.soul")
        assert proposal.content_hash == canonical.sha256(canonical.dumps(DATA)).hex()
        clock.advance(1)
        assert grow.validate(proposal.id, content_hash=proposal.content_hash).status == "validated"
        seedling = grow.germinate(proposal.id, by="gardener")
        assert (seedling.handle, seedling.data, seedling.usage_count) == ("self.soul", DATA, 0)
        token = grow.promote(seedling.id, spec_path="soul.md", spec_content="Be long.", impl_path="soul.py")
        assert (token.spec_content, token.impl_content) == ("Be long.", None)
        assert (token.promoted_at, token.expires_at) == ("2026-01-01T00:00:01.000000Z", "2026-01-08T00:00:01.000000Z")
        now = grow.seedling(seedling.id)
        assert (now.promoted_at, now.rollback_token) == (token.promoted_at, token.id)
        assert grow.rollback(token.id) == token == grow.token(token.id)
        assert grow.proposal(proposal.id).status == "rolled_back"

    def test_what_grew_may_differ_from_what_was_proposed(self, grow: Grow) -> None:
        assert grow.germinate(validated(grow), by="g", data={"source": "def f(): ..."}).data == {
            "source": "def f(): ..."
        }

    def test_a_proposal_that_is_not_sound_ends_there(self, grow: Grow) -> None:
        proposal = grow.propose(DATA, context="self", entity="soul", by="k-gent")
        assert grow.validate(proposal.id, passed=False).status == "rejected"
        for call in (lambda: grow.validate(proposal.id), lambda: grow.germinate(proposal.id, by="g")):
            with pytest.raises(errors.GrowthStepError, match="rejected"):
                call()

    def test_only_what_was_looked_at_is_validated(self, grow: Grow, face: SyncExecutor) -> None:
        proposal = grow.propose(DATA, context="self", entity="soul", by="k-gent")
        face.write(lambda tx: tx.execute(_ALTER, id=proposal.id))
        with pytest.raises(errors.StaleVersionError):
            grow.validate(proposal.id, content_hash=proposal.content_hash)
        assert grow.proposal(proposal.id).status == "draft"

    @pytest.mark.parametrize("status", list(GrowthStatus))
    def test_only_legal_steps_are_taken(self, grow: Grow, status: GrowthStatus) -> None:
        seedling, token = _at(grow, status)
        id = grow.proposals()[0].id
        steps: dict[GrowthStatus, Callable[[], Any]] = {
            GrowthStatus.VALIDATED: lambda: grow.validate(id),
            GrowthStatus.REJECTED: lambda: grow.validate(id, passed=False),
            GrowthStatus.GERMINATED: lambda: grow.germinate(id, by="g"),
        }
        if seedling is not None:
            steps[GrowthStatus.PROMOTED] = lambda: grow.promote(seedling.id)
            steps[GrowthStatus.PRUNED] = lambda: grow.prune(seedling.id)
        if token is not None:
            steps[GrowthStatus.ROLLED_BACK] = lambda: grow.rollback(token.id)
        for to, step in steps.items():
            if to in EDGES[status]:
                continue
            with pytest.raises(errors.GrowthStepError):
                step()
            assert grow.proposal(id).status == status
        assert EDGES[status] <= set(steps) | {GrowthStatus.ROLLED_BACK}

    def test_a_promotion_is_rolled_back_within_seven_days_or_never(self, grow: Grow, clock: FrozenClock) -> None:
        _, token = promoted(grow)
        clock.advance(7 * DAY - 1)
        _, other = promoted(grow, "other")
        clock.advance(1)
        for _ in range(2):
            with pytest.raises(errors.RollbackExpiredError):
                grow.rollback(token.id)
            assert grow.expire() in (0, 1)
        assert grow.proposals(status="promoted")[-1].entity == "soul"
        with pytest.raises(errors.NotFoundError):
            grow.token(token.id)
        assert grow.rollback(other.id).handle == "self.other"

    def test_the_latest_promotion_of_a_handle_goes_back_first(self, grow: Grow) -> None:
        _, first = promoted(grow, before="1")
        again, second = promoted(grow, before="2")
        promoted(grow, "other")
        with pytest.raises(errors.GrowthStepError, match="roll that back first"):
            grow.rollback(first.id)
        assert grow.rollback(second.id).spec_content == "2"
        assert grow.rollback(first.id).spec_content == "1"
        with pytest.raises(errors.GrowthStepError):
            grow.prune(again.id)

    def test_what_was_pruned_stands_in_nobodys_way(self, grow: Grow) -> None:
        _, first = promoted(grow)
        later, token = promoted(grow)
        assert grow.prune(later.id).pruned_at is not None
        with pytest.raises(errors.GrowthStepError, match="pruned"):
            grow.rollback(token.id)
        grow.rollback(first.id)

    def test_uses_are_counted_with_the_patterns_of_failures(self, grow: Grow) -> None:
        seedling = germinated(grow)
        assert seedling.success_rate == 0
        grow.use(seedling.id)
        for failure in ("timeout", "no\nanswer", "timeout"):
            grow.use(seedling.id, failure=failure)
        grow.promote(seedling.id)
        told = grow.use(seedling.id)
        assert (told.usage_count, told.success_count, told.success_rate) == (5, 2, 0.4)
        assert told.failure_patterns == ("timeout", "no\nanswer")
        for number in range(150):
            told = grow.use(seedling.id, failure=f"f{number}")
        assert told.failure_patterns == tuple(f"f{number}" for number in range(50, 150))
        grow.prune(seedling.id)
        with pytest.raises(errors.GrowthStepError, match="pruned"):
            grow.use(seedling.id)
        assert grow.seedling(seedling.id).usage_count == 155

    def test_what_is_not_there_is_not_found(self, grow: Grow) -> None:
        for call in (
            lambda: grow.validate("x"),
            lambda: grow.germinate("x", by="g"),
            lambda: grow.use("x"),
            lambda: grow.promote("x"),
            lambda: grow.rollback("x"),
            lambda: grow.prune("x"),
            lambda: grow.proposal("x"),
            lambda: grow.seedling("x"),
            lambda: grow.token("x"),
        ):
            with pytest.raises(errors.NotFoundError):
                call()

    def test_what_makes_no_sense_is_refused(self, grow: Grow) -> None:
        seedling = germinated(grow)
        for call in (
            lambda: grow.propose({1}, context="c", entity="e", by="b"),
            lambda: grow.propose(DATA, context="", entity="e", by="b"),
            lambda: grow.germinate("x", by=""),
            lambda: grow.use(seedling.id, failure="x" * 2000),
            lambda: grow.promote(seedling.id, spec_content="\0"),
            lambda: grow.proposals(status="asleep"),
            lambda: grow.nursery(limit=0),
        ):
            with pytest.raises(errors.InvalidInputError):
                call()
        assert grow.proposals(status="germinated")[0].id == seedling.proposal_id

    def test_proposals_and_the_nursery_are_listed_newest_first(self, grow: Grow, clock: FrozenClock) -> None:
        seedlings = []
        for number in range(4):
            seedlings.append(germinated(grow, f"e{number % 2}"))
            clock.advance(number % 2)
        grow.promote(seedlings[0].id)
        assert [each.id for each in grow.nursery()] == [each.id for each in reversed(seedlings)]
        assert [each.id for each in grow.nursery(handle="self.e0")] == [seedlings[2].id, seedlings[0].id]
        assert [each.id for each in grow.nursery(status="promoted")] == [seedlings[0].id]
        first = grow.proposals(limit=3)
        assert [*first, *grow.proposals(cursor=first.next_cursor)] == list(grow.proposals())
        page = grow.nursery(limit=3)
        assert [*page, *grow.nursery(cursor=page.next_cursor)] == list(grow.nursery())

    def test_rows_of_other_programs_are_shown_as_they_are(self, grow: Grow, face: SyncExecutor) -> None:
        face.write(lambda tx: tx.execute(_FOREIGN))
        assert (grow.proposal("theirs").data, grow.proposal("theirs").entity) == ("no json", "")
        ours = grow.propose(DATA, context="self", entity="soul", by="k-gent").id
        page = grow.proposals(limit=1)
        assert [each.id for each in (*page, *grow.proposals(cursor=page.next_cursor))] == [ours, "theirs"]
        assert grow.validate("theirs").status == "validated"

    # --- racing callers ------------------------------------------------------------------------------------------

    def test_of_many_promotions_one_counts(self, grow: Grow) -> None:
        for _ in range(4):
            seedling = germinated(grow)

            def one(number: int, id: str = seedling.id) -> str:
                return _tried(lambda: grow.promote(id, spec_content=str(number)))

            got = together(8, one)
            assert got.pop("refused") == 7
            assert list(got) == [grow.seedling(seedling.id).rollback_token]

    def test_either_rolled_back_or_pruned(self, grow: Grow) -> None:
        for _ in range(4):
            seedling, token = promoted(grow)

            def one(number: int, seedling: str = seedling.id, token: str = token.id) -> str:
                if number % 2:
                    return _tried(lambda: grow.rollback(token), "rolled_back")
                return _tried(lambda: grow.prune(seedling), "pruned")

            got = together(8, one)
            assert got.pop("refused") == 7
            assert list(got) == [grow.proposal(seedling.proposal_id).status]

    def test_no_promotion_is_rolled_back_from_under_a_later_one(self, grow: Grow) -> None:
        for round in range(6):
            entity = f"e{round}"
            _, first = promoted(grow, entity)
            second = germinated(grow, entity)

            def one(number: int, token: str = first.id, seedling: str = second.id) -> str:
                if number % 2:
                    return _tried(lambda: grow.rollback(token), "back")
                return _tried(lambda: grow.promote(seedling), "on")

            got = together(4, one)
            assert got["on"] == 1
            assert len(grow.nursery(handle=f"self.{entity}", status="rolled_back")) == got["back"] <= 1

    def test_a_later_promotion_that_is_not_committed_yet_stands_in_the_way(
        self, grow: Grow, face: SyncExecutor
    ) -> None:
        _, first = promoted(grow)
        second = germinated(grow)

        def back() -> str:
            with pytest.raises(errors.GrowthStepError, match="roll that back first"):
                grow.rollback(first.id)
            return "refused"

        assert behind(face, lambda tx: steps.promote(tx, second.id), back) == "refused"
        assert len(grow.nursery(status="promoted")) == 2

    def test_no_use_is_lost(self, grow: Grow) -> None:
        seedling = germinated(grow)
        got = together(16, lambda number: bool(grow.use(seedling.id, failure=None if number % 2 else f"f{number}")))
        assert got == Counter({True: 16})
        told = grow.seedling(seedling.id)
        assert (told.usage_count, told.success_count) == (16, 8)
        assert set(told.failure_patterns) == {f"f{number}" for number in range(0, 16, 2)}

    # --- a model -------------------------------------------------------------------------------------------------

    def test_a_random_walk_ends_where_the_model_does(self, grow: Grow, clock: FrozenClock) -> None:
        GrowthMachine.grow, GrowthMachine.clock = grow, clock
        self.walk(GrowthMachine)


def _tried(step: Callable[[], Seedling | RollbackToken], word: str | None = None) -> str:
    try:
        done = step()
        return word or done.id
    except errors.GrowthStepError:
        return "refused"


def _at(grow: Grow, status: GrowthStatus) -> tuple[Seedling | None, RollbackToken | None]:
    """A proposal that stands there."""
    if status in {GrowthStatus.DRAFT, GrowthStatus.REJECTED, GrowthStatus.VALIDATED}:
        proposal = grow.propose(DATA, context="self", entity="soul", by="k-gent")
        if status is not GrowthStatus.DRAFT:
            grow.validate(proposal.id, passed=status is GrowthStatus.VALIDATED)
        return None, None
    seedling, token = germinated(grow), None
    if status in {GrowthStatus.PROMOTED, GrowthStatus.ROLLED_BACK}:
        token = grow.promote(seedling.id)
    if token is not None and status is GrowthStatus.ROLLED_BACK:
        grow.rollback(token.id)
    if status is GrowthStatus.PRUNED:
        grow.prune(seedling.id)
    return seedling, token


class GrowthMachine(RuleBasedStateMachine):
    """Proposals as plain Python beside the real ones; each walk has a handle of its own."""

    grow: ClassVar[Grow]
    clock: ClassVar[FrozenClock]
    walks: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        GrowthMachine.walks += 1
        self.entity, self.now = f"walk{GrowthMachine.walks}", 0
        self.status: dict[str, GrowthStatus] = {}
        self.seedlings: dict[str, str] = {}
        self.promotions: dict[str, tuple[str, int]] = {}
        self.uses: Counter[str] = Counter()

    def move(self, id: str, to: GrowthStatus, step: Callable[[], Any]) -> Any:
        """Take a step if the model allows it, else see it refused."""
        if to in EDGES[self.status[id]]:
            self.status[id] = to
            return step()
        with pytest.raises(errors.GrowthStepError):
            step()
        return None

    @rule(days=st.sampled_from([1, 3]))
    def time_passes(self, days: int) -> None:
        self.clock.advance(days * DAY)
        self.now += days

    @rule()
    def propose(self) -> None:
        self.status[self.grow.propose(DATA, context="c", entity=self.entity, by="b").id] = GrowthStatus.DRAFT

    @precondition(lambda self: self.status)
    @rule(number=st.integers(0, 100), passed=st.sampled_from([True, True, False]))
    def validate(self, number: int, passed: bool) -> None:
        id = list(self.status)[number % len(self.status)]
        to = GrowthStatus.VALIDATED if passed else GrowthStatus.REJECTED
        self.move(id, to, lambda: self.grow.validate(id, passed=passed))

    @precondition(lambda self: self.status)
    @rule(number=st.integers(0, 100))
    def germinate(self, number: int) -> None:
        id = list(self.status)[number % len(self.status)]
        made = self.move(id, GrowthStatus.GERMINATED, lambda: self.grow.germinate(id, by="g"))
        if made:
            self.seedlings[made.id] = id

    @precondition(lambda self: self.seedlings)
    @rule(number=st.integers(0, 100))
    def promote(self, number: int) -> None:
        seedling, id = list(self.seedlings.items())[number % len(self.seedlings)]
        token = self.move(id, GrowthStatus.PROMOTED, lambda: self.grow.promote(seedling))
        if token:
            self.promotions[token.id] = (id, self.now)

    @precondition(lambda self: self.seedlings)
    @rule(number=st.integers(0, 100))
    def prune(self, number: int) -> None:
        seedling, id = list(self.seedlings.items())[number % len(self.seedlings)]
        self.move(id, GrowthStatus.PRUNED, lambda: self.grow.prune(seedling))

    @precondition(lambda self: self.seedlings)
    @rule(number=st.integers(0, 100))
    def use(self, number: int) -> None:
        seedling, id = list(self.seedlings.items())[number % len(self.seedlings)]
        if self.status[id] in IN_USE:
            self.uses[seedling] += 1
            assert self.grow.use(seedling).usage_count == self.uses[seedling]
        else:
            with pytest.raises(errors.GrowthStepError):
                self.grow.use(seedling)

    @precondition(lambda self: self.promotions)
    @rule(number=st.integers(0, 100))
    def roll_back(self, number: int) -> None:
        tokens = list(self.promotions)
        place = number % len(tokens)
        id, at = self.promotions[tokens[place]]
        later = [self.promotions[token][0] for token in tokens[place + 1 :]]
        if self.status[id] is not GrowthStatus.PROMOTED:
            wanted: Any = errors.GrowthStepError
        elif self.now - at >= 7:
            wanted = errors.RollbackExpiredError
        elif any(self.status[each] is GrowthStatus.PROMOTED for each in later):
            wanted = errors.GrowthStepError
        else:
            assert self.grow.rollback(tokens[place]).id == tokens[place]
            self.status[id] = GrowthStatus.ROLLED_BACK
            return
        with pytest.raises(wanted):
            self.grow.rollback(tokens[place])

    @rule()
    def expire(self) -> None:
        self.grow.expire()

    @invariant()
    def the_store_agrees(self) -> None:
        for id in list(self.status)[-4:]:
            assert self.grow.proposal(id).status == self.status[id]
        for each in self.grow.nursery(handle=f"c.{self.entity}"):
            status = self.status[each.proposal_id]
            assert (each.pruned_at is not None) == (status is GrowthStatus.PRUNED)
            assert each.usage_count == self.uses[each.id]


class TestSqlite(OnSqlite, Steps):
    walks = 6


class TestMemory(InMemory, Steps):
    pass


class TestPostgres(OnPostgres, Steps):
    walks = 3
