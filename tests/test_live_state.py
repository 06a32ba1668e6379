"""The live state: what a program changes in it becomes one small patch."""

import copy
import json
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aguia.codec.json import copy_value
from aguia.conversation.live import LiveState
from aguia.conversation.patch import PatchError, apply

scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "a", "b/~", "ü"])
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc/~"), inner, max_size=4)
    ),
    max_leaves=20,
)


def live(value: Any) -> LiveState:
    return LiveState(value, copy_value)


def told_after(state: LiveState) -> Any:
    """What a reader holds after it has been told the changes."""
    before = copy.deepcopy(state.told)
    operations = state.changes()
    if operations is None:
        return before
    state.tell(operations)
    assert apply(before, operations) == state.told
    return state.told


def test_a_change_anywhere_is_one_operation() -> None:
    state = live({"plan": [{"step": "read", "done": False}], "title": "x" * 100})
    state.value["plan"][0]["done"] = True
    assert state.changes() == [{"op": "replace", "path": "/plan/0/done", "value": True}]


def test_nothing_touched_is_nothing_to_tell() -> None:
    state = live({"a": 1})
    assert state.changes() is None
    assert state.value == {"a": 1}
    assert state.changes() is None
    state.value["a"] = 2
    state.value["a"] = 1
    assert state.changes() is None


def test_every_way_to_change_a_dictionary() -> None:
    state = live({"a": 1, "b": {"c": 1}, "pad": "x" * 200})
    value = state.value
    value.update({"a": 2}, d=4)
    value |= {"e": {"f": []}}
    assert value.setdefault("a", 9) == 2
    assert value.setdefault("g", []) == []
    value["e"]["f"].append(1)
    assert value.pop("b") == {"c": 1}
    assert value.pop("nothing", 7) == 7
    with pytest.raises(KeyError):
        value.pop("nothing")
    assert told_after(state) == {"a": 2, "pad": "x" * 200, "d": 4, "e": {"f": [1]}, "g": []}
    assert value.popitem() == ("g", [])
    del value["d"]
    assert told_after(state) == {"a": 2, "pad": "x" * 200, "e": {"f": [1]}}
    value.clear()
    assert told_after(state) == {}


def test_every_way_to_change_a_list() -> None:
    state = live({"l": [3, 1, 2], "pad": "x" * 200})
    items = state.value["l"]
    items.sort()
    assert told_after(state)["l"] == [1, 2, 3]
    items.reverse()
    items.append({"n": 1})
    items.extend([5, 6])
    items += [7]
    state.value["l"] += [8]
    items.insert(0, 0)
    assert told_after(state)["l"] == [0, 3, 2, 1, {"n": 1}, 5, 6, 7, 8]
    items[4]["n"] = 2
    items[1:4] = ["s"]
    del items[0]
    items.remove(6)
    assert items.pop() == 8
    assert told_after(state)["l"] == ["s", {"n": 2}, 5, 7]
    items *= 2
    del items[1:]
    assert told_after(state)["l"] == ["s"]
    items.clear()
    assert told_after(state)["l"] == []


def test_an_element_put_in_front_is_one_operation() -> None:
    state = live([{"id": n, "text": "x" * 50} for n in range(20)])
    state.value.insert(0, "first")
    assert state.changes() == [{"op": "add", "path": "/0", "value": "first"}]


def test_a_part_held_on_to_stays_a_part() -> None:
    state = live({"a": {"b": []}, "pad": "x" * 99})
    part = state.value["a"]["b"]
    part.append(1)
    assert told_after(state)["a"] == {"b": [1]}
    part.append(2)
    assert state.changes() == [{"op": "add", "path": "/a/b/1", "value": 2}]
    state.tell(state.changes() or [])
    # Also when somebody else amends the state.
    state.tell(
        [{"op": "add", "path": "/z", "value": 0}, {"op": "add", "path": "/a/b/0", "value": 9}]
    )
    assert part == [9, 1, 2]
    part.append(3)
    assert state.changes() == [{"op": "add", "path": "/a/b/3", "value": 3}]


def test_what_is_put_in_is_copied_and_what_is_taken_out_concerns_nobody() -> None:
    state = live({"a": []})
    mine = [1]
    state.value["a"] = mine
    mine.append(2)
    assert told_after(state) == {"a": [1]}
    taken = state.value.pop("a")
    told_after(state)
    taken.append(5)
    assert state.changes() is None
    # The same container in two places is two values.
    state.value["x"] = state.value["y"] = {"n": 1}
    state.value["z"] = state.value["x"]
    state.value["x"]["n"] = 2
    assert told_after(state) == {"x": {"n": 2}, "y": {"n": 1}, "z": {"n": 1}}


def test_true_is_not_one() -> None:
    state = live({"a": 1, "b": [True], "pad": "x" * 99})
    state.value["a"] = True
    state.value["b"][0] = 1
    assert state.changes() == [
        {"op": "replace", "path": "/a", "value": True},
        {"op": "replace", "path": "/b/0", "value": 1},
    ]


def test_a_snapshot_where_a_patch_would_be_longer() -> None:
    state = live({str(n): n for n in range(20)})
    state.value.clear()
    state.value["only"] = 1
    assert state.changes() == [{"op": "replace", "path": "", "value": {"only": 1}}]
    assert told_after(state) == {"only": 1}


@pytest.mark.parametrize("value", [None, 3, "text", [1], {"a": 1}])
def test_the_whole_value_can_be_assigned(value: Any) -> None:
    state = live({})
    state.value = value
    assert told_after(state) == value
    assert state.value == value
    assert state.changes() is None


def test_what_is_no_json_is_refused_and_changes_nothing() -> None:
    state = live({"a": []})
    for wrong in (float("nan"), {1: 2}, {"x": {3}}, object()):
        with pytest.raises((ValueError, TypeError)):
            state.value["a"].append(wrong)
        with pytest.raises((ValueError, TypeError)):
            state.value["b"] = wrong
    with pytest.raises(TypeError):
        state.value[1] = 2
    assert state.value == {"a": []}
    assert state.changes() is None


def test_a_patch_of_others_that_does_not_apply_changes_nothing() -> None:
    state = live({"a": [1]})
    part = state.value["a"]
    with pytest.raises(PatchError):
        state.tell([{"op": "add", "path": "/a/-", "value": 2}, {"op": "remove", "path": "/no"}])
    assert state.told == {"a": [1]} == state.value
    assert part == [1]


def test_live_containers_copy_and_pickle_as_ordinary_ones() -> None:
    state = live({"a": [1, {"b": 2}]})
    for twin in (copy.deepcopy(state.value), pickle.loads(pickle.dumps(state.value))):
        assert twin == {"a": [1, {"b": 2}]}
        twin["a"].append(3)
    assert type(state.value.copy()) is dict
    assert type(state.value["a"].copy()) is list
    assert state.changes() is None


@st.composite
def programs(draw: st.DrawFn) -> tuple[Any, list[tuple[int, int, int, Any]]]:
    start = draw(st.dictionaries(st.sampled_from("abc"), values, min_size=1, max_size=3))
    steps = draw(
        st.lists(
            st.tuples(st.integers(0, 9), st.integers(0, 5), st.integers(0, 5), values), max_size=20
        )
    )
    return start, steps


def text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def containers(value: Any) -> list[Any]:
    found = []
    if isinstance(value, dict | list):
        found.append(value)
        for item in value.values() if isinstance(value, dict) else value:
            found += containers(item)
    return found


@pytest.mark.unmeasured
@given(programs())
@settings(max_examples=200, deadline=None)
def test_whatever_a_program_does_the_reader_ends_with_the_same(
    program: tuple[Any, list[tuple[int, int, int, Any]]],
) -> None:
    start, steps = program
    state = live(start)
    mirror = copy.deepcopy(start)
    reader = copy.deepcopy(start)

    def tell() -> None:
        nonlocal reader
        operations = state.changes()
        if operations is not None:
            reader = apply(reader, operations)
            state.tell(operations)
        assert reader == mirror == state.told == state.value
        # As text too, where `true` is not `1`.
        assert text(reader) == text(mirror) == text(state.value)

    for what, where, how, new in steps:
        mine, theirs = containers(state.value), containers(mirror)
        target, twin = mine[where % len(mine)], theirs[where % len(theirs)]
        for container in (target, twin):
            if isinstance(container, dict):
                key = "abcdef"[how]
                if what < 6:
                    container[key] = copy.deepcopy(new)
                elif what < 8:
                    container.pop(key, None)
                else:
                    container.clear()
            elif what < 3:
                container.insert(how, copy.deepcopy(new))
            elif what < 5 and container:
                container[how % len(container)] = copy.deepcopy(new)
            elif what < 7 and container:
                del container[how % len(container)]
            elif what == 7:
                container.reverse()
            else:
                container[how:] = copy.deepcopy([new])
        if what % 2:
            tell()
    tell()


def test_a_refused_assignment_takes_nothing_out_of_the_value() -> None:
    state = live({"a": {"x": 1}, "l": [[1], [2]], "pad": "x" * 99})
    wrong: list[Any] = [1, object()]
    with pytest.raises(ValueError, match="no JSON"):
        state.value["a"] = object()
    with pytest.raises(ValueError, match="no JSON"):
        state.value["l"][0] = object()
    with pytest.raises(ValueError, match="no JSON"):
        state.value["l"][:] = wrong
    with pytest.raises(ValueError, match="attempt to assign"):
        state.value["l"][::2] = [1, 2, 3]
    with pytest.raises(IndexError):
        del state.value["l"][5]
    state.value["a"]["y"] = 2
    state.value["l"][0].append(9)
    assert told_after(state) == {"a": {"x": 1, "y": 2}, "l": [[1, 9], [2]], "pad": "x" * 99}


def test_a_sort_that_fails_is_told_as_far_as_it_came() -> None:
    state = live({"l": [3, 1, 2, "x", 0], "pad": "x" * 99})
    with pytest.raises(TypeError):
        state.value["l"].sort()
    assert told_after(state) == state.value
