"""States and references of threads: put together by hand, and still the one DAG-CBOR there is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import dagcbor
from holdproof.errors import FormatError
from holdproof.memory.threads import thread_states
from holdproof.memory.threads.channel_values import BlockRef, InlineRef, ListRef, Ref
from holdproof.memory.threads.thread_states import CheckpointState

_HASH = st.binary(min_size=32, max_size=32)
_TAG = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=100)
_NAME = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=50)


@st.composite
def lists(draw: st.DrawFn) -> ListRef:
    size = 8 * draw(st.integers(0, 1000))
    root = draw(_HASH) if size else None
    return ListRef(draw(_TAG), root, size, tuple(draw(st.lists(_HASH, max_size=7))))


REFS = st.builds(InlineRef, _TAG, st.binary(max_size=96)) | st.builds(BlockRef, _TAG, _HASH) | lists()


def plain(ref: Ref) -> list[dagcbor.Value]:
    match ref:
        case InlineRef(tag, data):
            return [0, tag, data]
        case BlockRef(tag, digest):
            return [1, tag, digest]
        case ListRef(tag, root, size, tail):
            return [2, tag, root, size, b"".join(tail)]


@given(
    st.builds(
        CheckpointState,
        st.dictionaries(_NAME, REFS, max_size=5),
        st.binary(max_size=400),
        st.lists(_NAME, max_size=3).map(lambda names: tuple(sorted(names))),
        st.none() | _HASH,
    )
)
def test_a_state_is_strict_dag_cbor_and_comes_back_as_it_was(state: CheckpointState) -> None:
    blob = thread_states.encode(state)
    refs: dict[str, dagcbor.Value] = {name: plain(ref) for name, ref in state.refs.items()}
    assert blob == dagcbor.encode({"c": refs, "n": list(state.needs), "p": state.parent_h, "s": state.own})
    assert thread_states.decode(blob) == state


@given(REFS)
def test_a_reference_is_strict_dag_cbor_and_comes_back_as_it_was(ref: Ref) -> None:
    data = thread_states.encode_ref(ref)
    assert data == dagcbor.encode(plain(ref))
    assert thread_states.decode_ref(data) == ref


def test_a_state_whose_needs_are_out_of_order_or_no_texts_is_refused() -> None:
    wrong: list[list[dagcbor.Value]] = [["b", "a"], ["a", 1]]
    for needs in wrong:
        with pytest.raises(FormatError):
            thread_states.decode(dagcbor.encode({"c": {}, "n": needs, "p": None, "s": b""}))
    assert thread_states.decode(dagcbor.encode({"c": {}, "n": ["a", "b"], "p": None, "s": b""})).needs == ("a", "b")
