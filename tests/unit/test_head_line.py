"""The time line of heads: how the log grew, one mark for what stands close, the gravest verdict leading."""

from holdproof.model.keys import Key
from holdproof.model.log import KnownHead
from holdproof.server.console import head_line

NOW = "2026-11-19T12:00:00.000000Z"


def _verified(minute: int, size: int, verdict: str = "VALID") -> KnownHead:
    return KnownHead(f"2026-11-19T10:{minute:02}:00.000000Z", size, "verified", "ann", verdict, f"entry-{minute}")


def _key(keyid: str, index: int | None) -> Key:
    return Key(keyid, "log", "ed25519", "", "", None, NOW, "leaf", 1, index)


def test_a_log_that_nobody_looked_at_has_no_line() -> None:
    assert head_line.lay_out((), (), NOW) is None


def test_marks_far_apart_are_one_each_and_lead_to_the_entry_that_says_so() -> None:
    line = head_line.lay_out([_verified(0, 10), _verified(50, 20)], (), NOW)
    assert line is not None
    assert [(point.count, point.tone, point.href) for point in line.points] == [
        (1, "good", "/evidence/proof?entry=entry-0"),
        (1, "good", "/evidence/proof?entry=entry-50"),
    ]
    assert [name for name, _ in line.lanes] == ["verified"]


def test_one_that_found_tampering_leads_among_those_that_stand_close() -> None:
    heads = [KnownHead("2026-11-01T00:00:00Z", 1, "signed"), _verified(0, 10), _verified(1, 11, "TAMPERED")]
    line = head_line.lay_out([*heads, _verified(2, 12)], (), NOW)
    assert line is not None
    [point] = line.points
    assert (point.count, point.tone, point.href) == (3, "bad", "/evidence/proof?entry=entry-1")
    assert point.says.startswith("3 verified, gravest 2026-11-19 10:01:00: verified TAMPERED at 11 entries")


def test_a_head_without_an_entry_of_its_own_leads_to_the_last_entry_under_it() -> None:
    assert head_line.proof_of(KnownHead(NOW, 42, "cosigned", "https://w")) == "/evidence/proof?entry=41"


def test_the_table_names_the_key_that_signed_heads_of_that_size() -> None:
    keys = [_key("old", 0), _key("new", 15), _key("waits", None)]
    line = head_line.lay_out([_verified(0, 10), _verified(50, 20)], keys, NOW)
    assert line is not None
    assert [(row.head.size, row.signed_by) for row in line.rows] == [(20, "new"), (10, "old")]


def test_everything_drawn_stands_inside_and_labels_are_distinct() -> None:
    heads = [_verified(minute, minute * 1000 + 1) for minute in range(60)]
    ahead = KnownHead("2026-11-19T12:00:30Z", 60_000, "stamped", "an authority whose clock is ahead", "", "token")
    line = head_line.lay_out([*heads, ahead], (), NOW)
    assert line is not None
    assert all(line.left_edge <= point.x <= line.right_edge and point.y < line.height for point in line.points)
    texts = [label.text for label in line.labels]
    assert len(set(texts)) == len(texts)
    assert len(line.points) < len(heads)
