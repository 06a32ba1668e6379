"""JSON Patch and JSON Pointer: `aguia.conversation.patch` (STATE-2, ACT-3)."""

import copy
import gc
import json
import pickle
from typing import Any

import jsonpatch
import jsonpointer
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aguia.conversation.patch import PatchError, PatchTarget, apply
from aguia.protocol.errors import AguiaError
from aguia.protocol.patch import check_patch
from support import require_peers

Operation = dict[str, Any]


def failure(document: Any, *operations: Any) -> PatchError:
    """Demand that the patch fails through both interfaces alike and leaves nothing behind."""
    before = copy.deepcopy(document)
    with pytest.raises(PatchError) as info:
        apply(document, operations)
    assert same(document, before)

    held = PatchTarget(document)
    with pytest.raises(PatchError):
        held.apply(operations)
    assert held.value is document
    assert same(document, before)

    owner = owning(document)
    with pytest.raises(PatchError) as again:
        owner.apply(operations)
    assert same(owner.value, before)
    assert str(again.value) == str(info.value)
    return info.value


def owning(document: Any) -> PatchTarget:
    """A target that owns every container of a document, and so changes all of them in place."""
    target = PatchTarget(document)

    def touch(value: Any, pointer: str) -> None:
        if isinstance(value, dict):
            target.apply([{"op": "add", "path": f"{pointer}/_touched", "value": 1}])
            target.apply([{"op": "remove", "path": f"{pointer}/_touched"}])
            for name, child in value.items():
                touch(child, f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}")
        elif isinstance(value, list):
            target.apply([{"op": "add", "path": f"{pointer}/-", "value": 1}])
            target.apply([{"op": "remove", "path": f"{pointer}/{len(value)}"}])
            for index, child in enumerate(value):
                touch(child, f"{pointer}/{index}")

    touch(document, "")
    return target


def same(left: Any, right: Any) -> bool:
    """The same JSON text: the order of members and the kinds of numbers count as well."""
    return json.dumps(left) == json.dumps(right)


# --- the public suite -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tests.json", "spec_tests.json"])
def test_public_suite(name: str) -> None:
    """STATE-2: every case of the json-patch-tests suite, the disabled ones too where they fit."""
    path = require_peers() / "json-patch-test-suite" / name
    cases = json.loads(path.read_text(encoding="utf-8"))
    wrong = []
    run = 0
    for case in cases:
        if "patch" not in case:  # a comment only
            continue
        if "'op' members" in case.get("error", ""):  # a matter of the JSON text, not of the value
            continue
        run += 1
        document = case["doc"]
        before = copy.deepcopy(document)
        for attempt in (apply_once, apply_held, apply_owned):
            try:
                result = attempt(document, case["patch"])
            except PatchError as error:
                if "error" not in case:
                    wrong.append(f"{case}: {error}")
            else:
                if "error" in case:
                    wrong.append(f"{case}: no error")
                elif "expected" in case and result != case["expected"]:
                    wrong.append(f"{case}: {result}")
        assert same(document, before)
    assert not wrong, "\n".join(wrong)
    assert run >= 15


def apply_once(document: Any, operations: list[Operation]) -> Any:
    return apply(document, operations)


def apply_held(document: Any, operations: list[Operation]) -> Any:
    target = PatchTarget(document)
    target.apply(operations)
    return target.value


def apply_owned(document: Any, operations: list[Operation]) -> Any:
    target = owning(document)
    target.apply(operations)
    return target.value


# --- pointers ---------------------------------------------------------------------------------

POINTERS = {
    "foo": ["bar", "baz"],
    "": 0,
    "a/b": 1,
    "c%d": 2,
    "e^f": 3,
    "g|h": 4,
    "i\\j": 5,
    'k"l': 6,
    " ": 7,
    "m~n": 8,
    "~1": 9,
    "é": 10,
    "0": 11,
    "-": 12,
    "01": 13,
}


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("", POINTERS),
        ("/foo", ["bar", "baz"]),
        ("/foo/0", "bar"),
        ("/", 0),
        ("/a~1b", 1),
        ("/c%d", 2),
        ("/e^f", 3),
        ("/g|h", 4),
        ("/i\\j", 5),
        ('/k"l', 6),
        ("/ ", 7),
        ("/m~0n", 8),
        ("/~01", 9),
        ("/é", 10),
        ("/0", 11),
        ("/-", 12),
        ("/01", 13),
    ],
)
def test_pointer_finds(pointer: str, value: Any) -> None:
    """STATE-2: RFC 6901 section 5, and names that would be indices in an array."""
    apply(POINTERS, [{"op": "test", "path": pointer, "value": value}])
    copied = apply(POINTERS, [{"op": "copy", "from": pointer, "path": "/copied"}])
    assert copied["copied"] == value
    if pointer:
        replaced = apply(POINTERS, [{"op": "replace", "path": pointer, "value": "new"}])
        assert list(replaced.values()).count("new") == (0 if pointer == "/foo/0" else 1)


@pytest.mark.parametrize(
    "token",
    [
        *["-", "2", "3", "-1", "+1", "01", "00", "1e0", "1.0", " 1", "1 ", "", "0x1", "1_0", "a"],
        *["\u0661", "\u00b9", "1" * 30, "1" * 10_000, "18446744073709551616", "~0", "length"],
    ],
)
@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove"},
        {"op": "replace", "value": 1},
        {"op": "test", "value": 1},
        {"op": "move", "from": "/x", "path": "/y"},
        {"op": "copy", "from": "/x", "path": "/y"},
    ],
)
def test_bad_index(operation: Operation, token: str) -> None:
    """STATE-4: no index of an existing element, no effect."""
    member = "from" if "from" in operation else "path"
    failure({"x": [1, 2]}, operation | {member: f"/x/{token}"})
    failure({"x": [[1, 2], [1, 2]]}, operation | {member: f"/x/{token}/0"})


@pytest.mark.parametrize(
    "token", ["3", "-1", "01", "1e0", "", "\u0661", "\u00b2", "1" * 5_000, "x"]
)
def test_bad_index_to_add(token: str) -> None:
    """STATE-4: an element can be added up to the end and not beyond."""
    failure([1, 2], {"op": "add", "path": f"/{token}", "value": 1})


@pytest.mark.parametrize("pointer", ["x", "x/y", "/x~", "/x~2", "/~~0", "#/x", " /x"])
@pytest.mark.parametrize("member", ["path", "from"])
def test_bad_pointer(pointer: str, member: str) -> None:
    """STATE-3: what is no JSON Pointer finds nothing."""
    document = {"x": {"y": 1}, "x~": 1, "x~2": 1, "~~0": 1}
    for op in ("move", "copy") if member == "from" else ("add", "remove", "replace", "test"):
        operation = {"op": op, "path": "/to", "value": 1, member: pointer}
        error = failure(document, operation)
        assert "no JSON Pointer" in error.reason
    failure(document, {"op": "move", "from": "", "path": pointer})


# --- operations -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "operation", "expected"),
    [
        ([1], {"op": "add", "path": "/0", "value": 0}, [0, 1]),
        ([1], {"op": "add", "path": "/1", "value": 2}, [1, 2]),
        ([1], {"op": "add", "path": "/-", "value": 2}, [1, 2]),
        ({"a": 1, "b": 2}, {"op": "add", "path": "/a", "value": 3}, {"a": 3, "b": 2}),
        ({"a": 1}, {"op": "add", "path": "/b", "value": None}, {"a": 1, "b": None}),
        ({"a": 1}, {"op": "add", "path": "/", "value": 2}, {"a": 1, "": 2}),
        ({"a": 1}, {"op": "add", "path": "", "value": [1]}, [1]),
        ("scalar", {"op": "add", "path": "", "value": None}, None),
        ({"a": 1, "b": 2}, {"op": "replace", "path": "/a", "value": 3}, {"a": 3, "b": 2}),
        ([1, 2], {"op": "replace", "path": "/1", "value": [3]}, [1, [3]]),
        ({"a": 1}, {"op": "replace", "path": "", "value": False}, False),
        ({"a": 1, "b": 2}, {"op": "remove", "path": "/a"}, {"b": 2}),
        ([1, 2, 3], {"op": "remove", "path": "/1"}, [1, 3]),
        ([1, 2, 3], {"op": "move", "from": "/0", "path": "/2"}, [2, 3, 1]),
        ([1, 2, 3], {"op": "move", "from": "/0", "path": "/-"}, [2, 3, 1]),
        ([1, 2, 3], {"op": "move", "from": "/2", "path": "/0"}, [3, 1, 2]),
        ([1, 2, [3]], {"op": "move", "from": "/0", "path": "/1/0"}, [2, [1, 3]]),
        ([1, 2], {"op": "move", "from": "/1", "path": "/1"}, [1, 2]),
        ({"a": 1, "b": 2}, {"op": "move", "from": "/a", "path": "/c"}, {"b": 2, "c": 1}),
        ({"a": 1, "b": 2}, {"op": "move", "from": "/a", "path": "/b"}, {"b": 1}),
        ({"a": {"b": {"c": 1}}}, {"op": "move", "from": "/a/b", "path": "/a"}, {"a": {"c": 1}}),
        ({"a": {"b": 1}}, {"op": "move", "from": "/a/b", "path": ""}, 1),
        ([[1, 2], 3], {"op": "move", "from": "/0/1", "path": ""}, 2),
        ({"a": {"b": 1}, "c": []}, {"op": "move", "from": "/a", "path": "/c/0"}, {"c": [{"b": 1}]}),
        ({"ab": {}, "a": 1}, {"op": "move", "from": "/a", "path": "/ab/x"}, {"ab": {"x": 1}}),
        ({"a": [1]}, {"op": "copy", "from": "/a", "path": "/b"}, {"a": [1], "b": [1]}),
        ({"a": [1]}, {"op": "copy", "from": "", "path": "/a/0"}, {"a": [{"a": [1]}, 1]}),
        ({"a": [1]}, {"op": "copy", "from": "/a", "path": "/a/-"}, {"a": [1, [1]]}),
        ({"a": [1]}, {"op": "copy", "from": "/a", "path": ""}, [1]),
        ({"a": 1}, {"op": "test", "path": "/a", "value": 1, "spare": "is ignored"}, {"a": 1}),
    ],
)
def test_operation(document: Any, operation: Operation, expected: Any) -> None:
    """STATE-2: the operations one by one, with the order of members that comes of it."""
    before = copy.deepcopy(document)
    for attempt in (apply_once, apply_held, apply_owned):
        assert same(attempt(document, [operation]), expected)
        assert same(document, before)


@pytest.mark.parametrize(
    ("document", "operation", "reason"),
    [
        ({"a": 1}, {"op": "replace", "path": "/b", "value": 1}, "there is no member 'b'"),
        ({"a": 1}, {"op": "remove", "path": "/b"}, "there is no member 'b'"),
        ({"a": 1}, {"op": "move", "from": "/b", "path": "/c"}, "there is no member 'b'"),
        ({"a": 1}, {"op": "move", "from": "/b", "path": "/b"}, "there is no member 'b'"),
        ({"a": 1}, {"op": "copy", "from": "/b", "path": "/c"}, "there is no member 'b'"),
        ({"a": 1}, {"op": "test", "path": "/b", "value": None}, "there is no member 'b'"),
        ({"a": {}}, {"op": "add", "path": "/a/b/c", "value": 1}, "there is no member 'b'"),
        ({"a": {}}, {"op": "move", "from": "/a", "path": "/b/c"}, "there is no member 'b'"),
        ({"a": []}, {"op": "add", "path": "/a/1", "value": 1}, "beyond the end of an array of 0"),
        ({"a": []}, {"op": "add", "path": "/a/b", "value": 1}, "'b' is no index of an array"),
        ({"a": [1]}, {"op": "remove", "path": "/a/-"}, "'-' is the place after the last element"),
        ({"a": "text"}, {"op": "add", "path": "/a/0", "value": 1}, "'a' is a string and has"),
        ({"a": "text"}, {"op": "test", "path": "/a/0", "value": "t"}, "'a' is a string and has"),
        ({"a": None}, {"op": "add", "path": "/a/b", "value": 1}, "'a' is null and has"),
        ({"a": 1.5}, {"op": "copy", "from": "/a/b", "path": "/c"}, "'a' is a number and has"),
        (True, {"op": "add", "path": "/a", "value": 1}, "the document is a boolean and has"),
        (None, {"op": "test", "path": "/a", "value": 1}, "the document is null and has"),
        ({"a": 1}, {"op": "remove", "path": ""}, "the whole document can't be removed"),
        ({"a": {}}, {"op": "move", "from": "/a", "path": "/a/b"}, "can't be moved into itself"),
        ({"a": {}}, {"op": "move", "from": "", "path": "/a/b"}, "can't be moved into itself"),
        ([[], 1], {"op": "move", "from": "/0", "path": "/0/0"}, "can't be moved into itself"),
        ([1, [2]], {"op": "move", "from": "/0", "path": "/1/0"}, "beyond the end of an array of 1"),
        ([1, 2], {"op": "move", "from": "/0", "path": "/2"}, "beyond the end of an array of 1"),
        ({"a": 1}, {"op": "test", "path": "/a", "value": 2}, "found 1, expected 2"),
        ({"a": 10}, {"op": "test", "path": "/a", "value": "10"}, "found 10, expected the string"),
        ({"a": None}, {"op": "test", "path": "/a", "value": False}, "found null, expected false"),
        ({"a": {}}, {"op": "test", "path": "/a", "value": []}, "found an object of 0 members"),
        ({"a": [1]}, {"op": "test", "path": "/a", "value": [2]}, "its content is not as expected"),
    ],
)
def test_refused(document: Any, operation: Operation, reason: str) -> None:
    """STATE-4: an operation that can't be done says why, and does nothing."""
    error = failure(document, operation)
    assert reason in error.reason
    assert error.index == 0
    assert error.operation is operation


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (None, "an operation is an object, not null"),
        (["add", "/x", 1], "an operation is an object, not an array"),
        ("add", "an operation is an object, not a string"),
        ({}, "it has no 'op'"),
        ({"op": "add", "value": 1}, "it has no 'path'"),
        ({"op": "add", "path": None, "value": 1}, "'path' is null"),
        ({"op": "replace", "path": [], "value": 1}, "'path' is an array"),
        ({"op": "add", "path": "/x"}, "it has no 'value'"),
        ({"op": "replace", "path": ""}, "it has no 'value'"),
        ({"op": "test", "path": "/x"}, "it has no 'value'"),
        ({"op": "move", "path": "/x"}, "it has no 'from'"),
        ({"op": "copy", "path": "", "from": 0}, "'from' is a number"),
        ({"op": "merge", "path": "/x", "value": 1}, "'op' is none of the six"),
        ({"op": ["add"], "path": "/x", "value": 1}, "'op' is none of the six"),
        ({"op": None, "path": "/x"}, "'op' is none of the six"),
        ({"op": "Add", "path": "/x", "value": 1}, "'op' is none of the six"),
    ],
)
def test_malformed_operation(operation: Any, reason: str) -> None:
    """STATE-3: what `check_patch` refuses does no harm when it comes here anyway."""
    with pytest.raises(ValueError, match="operation 0"):
        check_patch([operation])
    error = failure({"x": 1}, operation)
    assert reason in error.reason


@pytest.mark.parametrize("patch", [None, 1, "[]", b"[]", {"op": "remove", "path": "/x"}])
def test_patch_that_is_no_array(patch: Any) -> None:
    """STATE-3: one operation alone is no patch."""
    with pytest.raises(PatchError, match="a patch is an array of operations") as info:
        apply({"x": 1}, patch)
    assert info.value.index is None
    assert info.value.operation is None


def test_operations_may_be_any_sequence_and_mapping() -> None:
    """STATE-2: what Python callers have at hand works."""
    from types import MappingProxyType

    operation = MappingProxyType({"op": "add", "path": "/x", "value": 1})
    assert apply({}, (operation,)) == {"x": 1}


def test_containers_of_other_classes() -> None:
    """STATE-2: subclasses of `dict` and `list` are read as such, and copied as plain ones."""
    from collections import defaultdict

    class Stack(list[int]):
        pass

    document = {"counts": defaultdict(int, a=1), "stack": Stack([1])}
    error = failure({"counts": defaultdict(int)}, {"op": "test", "path": "/counts/b", "value": 0})
    assert error.reason == "there is no member 'b'"
    result = apply(
        document,
        [
            {"op": "add", "path": "/counts/b", "value": 2},
            {"op": "add", "path": "/stack/-", "value": 2},
        ],
    )
    assert result == {"counts": {"a": 1, "b": 2}, "stack": [1, 2]}
    assert type(result["counts"]) is dict
    assert type(result["stack"]) is list
    assert document == {"counts": {"a": 1}, "stack": [1]}


# --- errors -----------------------------------------------------------------------------------


def test_error_reads_well() -> None:
    """STATE-4: which operation, where, and why."""
    error = failure(
        {"a": {}},
        {"op": "test", "path": "/a", "value": {}},
        {"op": "add", "path": "/c", "value": 1},
        {"op": "replace", "path": "/a/b", "value": 1},
    )
    assert isinstance(error, AguiaError)
    assert error.index == 2
    assert error.operation == {"op": "replace", "path": "/a/b", "value": 1}
    assert str(error) == "operation 2 (replace '/a/b'): there is no member 'b'"
    error = failure({"a": {}}, {"op": "move", "from": "/x", "path": "/y"})
    assert str(error) == "operation 0 (move '/x' to '/y'): there is no member 'x'"
    assert str(failure({}, 7)) == "operation 0: an operation is an object, not a number"
    assert str(failure({}, {"path": "/x"})) == "operation 0: it has no 'op'"
    assert str(failure({}, {"op": "x\n", "path": "/x"})).startswith("operation 0 ('x\\n' '/x'): ")


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "replace", "path": "/" + "x" * 1_000_000, "value": "y" * 1_000_000},
        {"op": "add", "path": "/a/" + "1" * 1_000_000, "value": "y" * 1_000_000},
        {"op": "add", "path": "/s/" + "\x00" * 1_000_000, "value": 1},
        {"op": "add", "path": "x" * 1_000_000, "value": 1},
        {"op": "test", "path": "/s", "value": "y" * 1_000_000},
        {"op": "test", "path": "/s", "value": 10**5_000},
        {"op": "test", "path": "/s", "value": list(range(100_000))},
        {"op": "copy", "from": "/" + "x" * 1_000_000, "path": "/" + "y" * 1_000_000},
        {"op": "x" * 1_000_000, "path": "/a"},
    ],
)
def test_error_text_is_short(operation: Operation) -> None:
    """STATE-4: a message never carries what the peer sent at full length."""
    error = failure({"s": "s" * 1_000_000, "a": []}, operation)
    assert len(str(error)) < 1_000


def test_error_text_can_be_printed() -> None:
    """STATE-4: half of a surrogate pair in a name does not break the message."""
    error = failure({}, {"op": "remove", "path": "/\ud800"})
    assert str(error).encode("utf-8").endswith(b"there is no member '\\ud800'")


def test_error_can_be_pickled() -> None:
    """STATE-4: errors cross the borders of processes."""
    error = failure({}, {"op": "remove", "path": "/x"})
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert again.operation == error.operation


# --- `test` -----------------------------------------------------------------------------------

EQUAL = [
    (1, 1.0),
    (0, -0.0),
    (2**53, float(2**53)),
    ("é", "é"),
    ({"a": 1, "b": [2]}, {"b": [2.0], "a": 1}),
    ([], []),
    (None, None),
    (True, True),
]
UNEQUAL = [
    (1, True),
    (0, False),
    (0.0, False),
    (1, "1"),
    (2**53 + 1, float(2**53)),
    (None, False),
    (None, 0),
    (None, ""),
    ([], {}),
    ([], None),
    ([1, 2], [2, 1]),
    ([1], [1, 2]),
    ([1], [True]),
    ({"a": 0}, {"a": False}),
    ({"a": 1}, {"b": 1}),
    ({"a": None}, {}),
    ({"a": {"b": [1]}}, {"a": {"b": [2]}}),
    ("é", "e\u0301"),
]


@pytest.mark.parametrize(("left", "right"), EQUAL)
def test_equal(left: Any, right: Any) -> None:
    """STATE-2: equality of RFC 6902 section 4.6."""
    for found, wanted in ((left, right), (right, left)):
        document = {"x": found}
        assert apply(document, [{"op": "test", "path": "/x", "value": wanted}]) is document
        apply([found], [{"op": "test", "path": "", "value": [wanted]}])


@pytest.mark.parametrize(("left", "right"), UNEQUAL)
def test_unequal(left: Any, right: Any) -> None:
    """STATE-4: equality of RFC 6902 section 4.6."""
    failure({"x": left}, {"op": "test", "path": "/x", "value": right})
    failure({"x": right}, {"op": "test", "path": "/x", "value": left})


def nest(depth: int, inner: Any) -> Any:
    value = inner
    for _ in range(depth // 2):
        value = {"x": [value]}
    return value


@pytest.mark.unmeasured
def test_deep_nesting() -> None:
    """STATE-2: depth costs no recursion, in a document, a value or a path."""
    depth = 100_000
    document = nest(depth, {})
    path = "/x/0" * (depth // 2)
    apply(document, [{"op": "test", "path": "", "value": nest(depth, {})}])
    with pytest.raises(PatchError, match="its content is not as expected"):
        apply(document, [{"op": "test", "path": "", "value": nest(depth, {"y": 1})}])
    target = PatchTarget(document)
    target.apply([{"op": "add", "path": path + "/y", "value": 1}])
    target.apply([{"op": "copy", "from": "/x", "path": path + "/z"}])
    with pytest.raises(PatchError, match="no member 'q'"):
        target.apply(
            [{"op": "add", "path": path + "/w", "value": 1}, {"op": "remove", "path": "/q"}]
        )
    target.apply([{"op": "test", "path": path + "/y", "value": 1}])
    assert apply(document, [{"op": "test", "path": path, "value": {}}]) is document


# --- sharing and ownership --------------------------------------------------------------------


def test_what_did_not_change_is_shared() -> None:
    """STATE-2: only the containers on the path are new."""
    document: dict[str, Any] = {"a": {"b": {"c": 1}, "d": {}}, "e": [[1], [2]]}
    result = apply(document, [{"op": "replace", "path": "/a/b/c", "value": 2}])
    assert result == {"a": {"b": {"c": 2}, "d": {}}, "e": [[1], [2]]}
    assert result["a"]["d"] is document["a"]["d"]
    assert result["e"] is document["e"]
    assert document["a"]["b"]["c"] == 1


def test_no_change_is_the_same_document() -> None:
    """STATE-2: nothing is copied when nothing is to change."""
    document = {"a": {"b": 1}}
    assert apply(document, []) is document
    assert apply(document, [{"op": "test", "path": "/a/b", "value": 1}]) is document
    assert apply(document, [{"op": "move", "from": "/a/b", "path": "/a/b"}]) is document


class Counting(dict[str, Any]):
    """A `dict` that counts how often it is read from end to end."""

    copies = 0

    def keys(self) -> Any:
        Counting.copies += 1
        return super().keys()

    def __iter__(self) -> Any:
        Counting.copies += 1
        return super().__iter__()


@pytest.mark.unmeasured
def test_a_wide_container_is_copied_once() -> None:
    """STATE-2: after the first delta, the next ones change the same object."""
    wide = {str(number): {"n": number} for number in range(100_000)}
    target = PatchTarget({"wide": wide})

    def copies() -> list[int]:
        """The identities of the copies of the wide container that are alive."""
        return [
            id(found)
            for found in gc.get_objects()
            if type(found) is dict and len(found) >= 99_000 and "99999" in found
        ]

    assert copies() == [id(wide)]
    target.apply([{"op": "replace", "path": "/wide/5/n", "value": -1}])
    both = copies()
    assert len(both) == 2
    for number in range(0, 140, 7):
        target.apply([{"op": "replace", "path": f"/wide/{number}/n", "value": -2}])
        target.apply([{"op": "add", "path": f"/wide/new{number}", "value": {}}])
        target.apply([{"op": "remove", "path": f"/wide/{number}"}])
        target.apply([{"op": "move", "from": f"/wide/new{number}", "path": f"/wide/{number}"}])
        target.apply([{"op": "add", "path": f"/wide/{number}/x", "value": 1}])
        target.apply(
            [
                {"op": "test", "path": f"/wide/{number}/x", "value": 1},
                {"op": "replace", "path": f"/wide/{number}/x", "value": 2},
            ]
        )
        assert copies() == both
    # Nor does it cost a copy to have moved.
    target.apply([{"op": "move", "from": "/wide", "path": "/moved"}])
    target.apply([{"op": "replace", "path": "/moved/500", "value": {}}])
    target.apply([{"op": "move", "from": "/moved", "path": ""}])
    target.apply([{"op": "replace", "path": "/501", "value": {}}])
    assert copies() == both
    # Handed out, it is copied for the next delta, once.
    value = target.value
    assert [id(value)] == [each for each in both if each != id(wide)]
    target.apply([{"op": "replace", "path": "/0", "value": None}])
    target.apply([{"op": "replace", "path": "/1", "value": None}])
    assert len(copies()) == 3
    assert value["0"] == {"x": 2}
    assert wide["0"] == {"n": 0}
    assert len(wide) == 100_000


def test_within_one_patch_a_container_is_copied_once() -> None:
    """STATE-2: many operations of a patch share the work, also in `apply`."""
    Counting.copies = 0
    document = Counting({str(number): number for number in range(1_000)})
    result = apply(
        document,
        [{"op": "replace", "path": f"/{number}", "value": None} for number in range(1_000)],
    )
    assert Counting.copies == 1
    assert set(result.values()) == {None}
    assert document["7"] == 7


def test_handed_out_values_never_change() -> None:
    """STATE-2: whoever holds an earlier state keeps it."""
    target = PatchTarget({"a": {"b": []}})
    values = []
    for number in range(5):
        target.apply([{"op": "add", "path": "/a/b/-", "value": {"n": [number]}}])
        target.apply([{"op": "add", "path": f"/a/b/{number}/n/-", "value": "more"}])
        values.append(target.value)
    assert [len(value["a"]["b"]) for value in values] == [1, 2, 3, 4, 5]
    assert values[4]["a"]["b"][0] is values[0]["a"]["b"][0]


def test_replace_takes_another_document() -> None:
    """STATE-1: a snapshot replaces, falsy values and null too, and is not changed later."""
    target = PatchTarget({"a": 1})
    target.apply([{"op": "add", "path": "/b", "value": 1}])
    values: list[Any] = [None, False, 0, "", [], {}]
    for value in values:
        target.replace(value)
        assert target.value is value
    snapshot = {"a": {"b": 1}}
    target.replace(snapshot)
    target.apply([{"op": "replace", "path": "/a/b", "value": 2}])
    assert snapshot == {"a": {"b": 1}}
    assert target.value == {"a": {"b": 2}}


def test_values_of_operations_stay_as_they_are() -> None:
    """STATE-2: a value that an operation brought is not changed by the operations after it."""
    target = PatchTarget({})
    value: dict[str, Any] = {"list": [1], "map": {}}
    add = {"op": "add", "path": "/x", "value": value}
    more = {"op": "add", "path": "/x/list/-", "value": 2}
    target.apply([add, more, {"op": "add", "path": "/y", "value": value}, more])
    target.apply([more, {"op": "add", "path": "/y/map/z", "value": 1}])
    assert value == {"list": [1], "map": {}}
    assert target.value == {
        "x": {"list": [1, 2, 2, 2], "map": {}},
        "y": {"list": [1], "map": {"z": 1}},
    }
    target.apply([{"op": "add", "path": "", "value": value}])
    target.apply([{"op": "add", "path": "/z", "value": 1}])
    assert value == {"list": [1], "map": {}}


@pytest.mark.parametrize("source", ["/a", "/a/b", "/a/b/c", ""])
@pytest.mark.parametrize("changed", ["source", "copy"])
def test_copy_has_a_life_of_its_own(source: str, changed: str) -> None:
    """STATE-2: after `copy`, a change in one place is not seen in the other."""
    document = {"a": {"b": {"c": {"d": 1}}}}
    deepest = "/a/b/c/d"[len(source) :]
    for one_patch in (False, True):
        target = owning(document)
        patch: list[Operation] = [
            {"op": "copy", "from": source, "path": "/copied"},
            {
                "op": "replace",
                "path": (source if changed == "source" else "/copied") + deepest,
                "value": 2,
            },
        ]
        if one_patch:
            target.apply(patch)
        else:
            target.apply(patch[:1])
            target.apply(patch[1:])
        for place in (source, "/copied"):
            expected = 2 if (place == source) == (changed == "source") else 1
            target.apply([{"op": "test", "path": place + deepest, "value": expected}])


def test_move_keeps_what_is_owned_apart() -> None:
    """STATE-2: a value moved away is not changed through its old place, nor shared with it."""
    target = owning({"a": {"b": {"c": 1}}, "list": [{"n": 0}, {"n": 1}]})
    target.apply([{"op": "move", "from": "/a/b", "path": "/b"}])
    target.apply([{"op": "add", "path": "/a/b", "value": {"c": 2}}])
    target.apply([{"op": "replace", "path": "/b/c", "value": 3}])
    target.apply([{"op": "move", "from": "/list/0", "path": "/list/1"}])
    target.apply([{"op": "replace", "path": "/list/0/n", "value": 10}])
    target.apply([{"op": "move", "from": "/b", "path": "/a"}])
    target.apply([{"op": "add", "path": "/a/d", "value": 4}])
    before = target.value
    assert before == {"a": {"c": 3, "d": 4}, "list": [{"n": 10}, {"n": 0}]}
    target.apply([{"op": "move", "from": "/a", "path": ""}, {"op": "remove", "path": "/c"}])
    assert target.value == {"d": 4}
    assert before == {"a": {"c": 3, "d": 4}, "list": [{"n": 10}, {"n": 0}]}


def test_a_target_holds_nothing_that_left_the_document() -> None:
    """STATE-2: the memory of a long stream is that of its document."""
    gc.collect()
    start = len(gc.get_objects())
    target = PatchTarget({"doc": None, "list": []})
    for _ in range(500):
        target.apply([{"op": "replace", "path": "/doc", "value": {"a": {"b": {}}}}])
        target.apply([{"op": "add", "path": "/doc/a/b/c", "value": [1]}])
        target.apply([{"op": "add", "path": "/list/-", "value": {"x": {}}}])
        target.apply([{"op": "add", "path": "/list/0/x/y", "value": {}}])
        target.apply([{"op": "remove", "path": "/list/0"}])
    gc.collect()
    assert len(gc.get_objects()) - start < 100


def test_copied_target_is_independent() -> None:
    """STATE-2: a target and its copy do not change one another's document."""

    def pickled(target: PatchTarget) -> Any:
        return pickle.loads(pickle.dumps(target))

    for copying in (copy.copy, copy.deepcopy, pickled):
        target = owning({"a": {"b": 1}})
        other = copying(target)
        target.apply([{"op": "replace", "path": "/a/b", "value": 3}])
        other.apply([{"op": "add", "path": "/a/c", "value": 2}])
        assert other.value == {"a": {"b": 1, "c": 2}}
        assert target.value == {"a": {"b": 3}}


@pytest.mark.parametrize("op", ["replace", "add", "remove", "move", "copy"])
@pytest.mark.parametrize("place", ["/map/x", "/list/0"])
def test_a_new_value_is_not_taken_for_one_that_is_gone(op: str, place: str) -> None:
    """STATE-2: Python may put a new container where one was that the target had owned."""
    if op == "add" and place == "/list/0":
        op = "replace"  # an element added does not replace another
    document: dict[str, Any] = {"map": {"x": {}}, "list": [{}], "spare": None}
    target = PatchTarget(document)
    for _ in range(200):
        target.apply([{"op": "add", "path": f"{place}/owned", "value": 1}])
        operation: Operation = {"op": op, "path": place, "from": "/spare", "value": None}
        target.apply([operation])
        value = {"new": 1}
        adding: list[Operation] = [{"op": "add", "path": place, "value": value}]
        if op == "move":
            adding.append({"op": "add", "path": "/spare", "value": None})
        target.apply(adding)
        target.apply([{"op": "add", "path": f"{place}/other", "value": 1}])
        assert value == {"new": 1}


@pytest.mark.parametrize("home", ["/map/x", "/list/0"])
def test_copied_while_away(home: str) -> None:
    """STATE-2: a value that was copied after a move is shared, also when it is back."""
    target = owning({"map": {"x": {"n": 1}}, "list": [{"n": 1}], "away": {}})
    target.apply([{"op": "move", "from": home, "path": "/away/x"}])
    target.apply([{"op": "copy", "from": "/away/x", "path": "/copied"}])
    target.apply([{"op": "move", "from": "/away/x", "path": home}])
    target.apply([{"op": "replace", "path": f"{home}/n", "value": 2}])
    assert target.value["copied"] == {"n": 1}


# --- atomicity --------------------------------------------------------------------------------


def test_a_failed_patch_leaves_nothing_behind() -> None:
    """STATE-4: each kind of change is undone, the order of members included."""
    document = {"a": {"x": 1, "y": 2, "z": [1, 2, {"n": 1}]}, "b": {"m": {}, "n": {}}, "c": 3}
    error = failure(
        document,
        {"op": "replace", "path": "/a/x", "value": 5},
        {"op": "remove", "path": "/a/x"},
        {"op": "add", "path": "/a/x", "value": 6},
        {"op": "remove", "path": "/a/y"},
        {"op": "remove", "path": "/a/z/0"},
        {"op": "add", "path": "/a/z/0", "value": 7},
        {"op": "add", "path": "/a/z/-", "value": 8},
        {"op": "move", "from": "/a/z/2", "path": "/b/moved"},
        {"op": "replace", "path": "/b/moved/n", "value": 9},
        {"op": "move", "from": "/b/m", "path": "/a/z/0"},
        {"op": "copy", "from": "/a", "path": "/b/n"},
        {"op": "replace", "path": "/b/n/x", "value": 10},
        {"op": "replace", "path": "/a/x", "value": 11},
        {"op": "copy", "from": "", "path": "/d"},
        {"op": "replace", "path": "/d/c", "value": 12},
        {"op": "replace", "path": "/c", "value": 13},
        {"op": "replace", "path": "", "value": {"e": 1}},
        {"op": "add", "path": "/f", "value": 1},
        {"op": "test", "path": "/e", "value": 2},
    )
    assert error.index == 18


def test_after_a_failure_the_next_patch_works() -> None:
    """STATE-4: the target goes on from the prior value, without touching what was handed out."""
    document = {"a": {"b": 1}, "c": [1, 2]}
    target = owning(document)
    bad = {"op": "remove", "path": "/missing"}
    for first in (
        {"op": "replace", "path": "/a/b", "value": 2},
        {"op": "move", "from": "/a", "path": "/c/0"},
        {"op": "copy", "from": "", "path": ""},
        {"op": "replace", "path": "", "value": 1},
    ):
        with pytest.raises(PatchError):
            target.apply([first, bad])
        with pytest.raises(PatchError):
            target.apply([bad])
        target.apply([{"op": "add", "path": "/a/n", "value": 1}])
    value = target.value
    assert value == {"a": {"b": 1, "n": 1}, "c": [1, 2]}
    target.apply([{"op": "remove", "path": "/a/n"}])
    assert value == {"a": {"b": 1, "n": 1}, "c": [1, 2]}
    assert document == {"a": {"b": 1}, "c": [1, 2]}


def test_an_interruption_is_undone_too() -> None:
    """STATE-4: whatever ends a patch early, nothing partial is kept."""

    class Broken(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            raise KeyboardInterrupt

    target = owning({"a": 1})
    with pytest.raises(KeyboardInterrupt):
        target.apply([{"op": "replace", "path": "/a", "value": 2}, Broken()])
    assert target.value == {"a": 1}


# --- the limit on copies ----------------------------------------------------------------------


@pytest.mark.unmeasured
def test_copies_can_not_explode() -> None:
    """STATE-4: a few copies can describe a document that nobody could ever write."""
    double = [{"op": "copy", "from": "", "path": "/-"}]
    error = failure(["seed"], *double * 60)
    assert "copies too much" in error.reason
    target = PatchTarget(["seed"], max_copied=1_000)
    refused = 0
    for _ in range(60):
        try:
            target.apply(double)
        except PatchError:
            refused += 1
    assert refused > 45
    assert len(json.dumps(target.value)) < 100_000


def test_the_limit_counts_values_and_text_of_one_patch() -> None:
    """STATE-4: the limit is that of `max_copied`, and each patch has it anew."""
    copying = {"op": "copy", "from": "/text", "path": "/list/-"}
    document = {"text": "x" * 99, "list": []}
    assert len(apply(document, [copying] * 3, max_copied=300)["list"]) == 3
    with pytest.raises(PatchError, match="more than 299") as info:
        apply(document, [copying] * 3, max_copied=299)
    assert info.value.index == 2
    target = PatchTarget(document, max_copied=100)
    for _ in range(5):
        target.apply([copying])
    assert len(target.value["list"]) == 5
    named = [{"op": "copy", "from": "/a", "path": "/b"}]
    assert apply({"a": {"name": [1]}}, named, max_copied=7)["b"] == {"name": [1]}
    with pytest.raises(PatchError):
        apply({"a": {"name": [1]}}, named, max_copied=6)


# --- random documents and patches -------------------------------------------------------------

NAMES = ["a", "b", "", "a/b", "m~n", "0", "1"]
SCALARS = [None, True, False, 0, 1, 1.0, 2, "", "x", "10"]
VALUES = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    ),
    max_leaves=6,
)
# Some are no pointers at all, some no indices, some past the end.
TOKENS = [*NAMES, "2", "3", "-", "01", "-1", "1e0", "missing"]
BAD_POINTERS = ["a", "/~", "/a~2", "/a/~/b"]


def escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def pointers(document: Any, start: str = "") -> list[str]:
    """The pointers to all values of a document."""
    found = [start]
    if isinstance(document, dict):
        for name, value in document.items():
            found += pointers(value, f"{start}/{escape(name)}")
    elif isinstance(document, list):
        for index, value in enumerate(document):
            found += pointers(value, f"{start}/{index}")
    return found


def reference(document: Any, operations: list[Operation]) -> tuple[bool, Any]:
    """What the `jsonpatch` package makes of a patch: whether it applies, and the result.

    It changes its deep copy of the document in place. A container that is in two places, which
    comes of a `copy` before, would be so in the deep copy too; hence the detour through text.
    """
    try:
        patch = jsonpatch.JsonPatch(copy.deepcopy(operations))
        return True, patch.apply(json.loads(json.dumps(document)))
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException):
        return False, None


@st.composite
def pointers_into(draw: st.DrawFn, document: Any) -> str:
    """Mostly a place that exists, or a new one in a container; sometimes nonsense."""
    kind = draw(st.integers(0, 19))
    if kind == 0:
        return draw(st.sampled_from(BAD_POINTERS))
    found = draw(st.sampled_from(pointers(document)))
    if kind < 10:
        return found
    return f"{found}/{escape(draw(st.sampled_from(TOKENS)))}"


@st.composite
def operations_on(draw: st.DrawFn, document: Any) -> Operation:
    op = draw(st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]))
    operation: Operation = {"op": op, "path": draw(pointers_into(document))}
    if op in ("move", "copy"):
        operation["from"] = draw(pointers_into(document))
    elif op == "test":
        value = draw(VALUES)
        if draw(st.booleans()):  # the value that is there, if there is one
            try:
                value = jsonpointer.resolve_pointer(document, operation["path"])
            except jsonpointer.JsonPointerException:
                pass
        if isinstance(value, jsonpointer.EndOfList):
            value = None
        operation["value"] = copy.deepcopy(value)
    elif op != "remove":
        operation["value"] = draw(VALUES)
    if draw(st.integers(0, 39)) == 0:
        del operation[draw(st.sampled_from(sorted(operation.keys() - {"op"})))]
    return operation


@st.composite
def sessions(draw: st.DrawFn) -> tuple[Any, list[list[Operation]]]:
    """A document and patches that come one after the other, many of which apply."""
    document = now = draw(VALUES)
    patches = []
    for _ in range(draw(st.integers(1, 5))):
        operations: list[Operation] = []
        step = now
        for _ in range(draw(st.integers(0, 4))):
            operation = draw(operations_on(step))
            operations.append(operation)
            applies, result = reference(step, [operation])
            if applies:
                step = result
        patches.append(operations)
        applies, result = reference(now, operations)
        if applies:
            now = result
    return document, patches


@pytest.mark.unmeasured
@settings(max_examples=250, deadline=None)
@given(sessions())
def test_same_as_jsonpatch(session: tuple[Any, list[list[Operation]]]) -> None:
    """STATE-2, STATE-4: same result or both fail; and nothing given or handed out ever changes."""
    document, patches = session
    given_patches = copy.deepcopy(patches)
    kept = [(document, copy.deepcopy(document))]
    target = PatchTarget(document)  # hands its value out after each patch
    quiet = PatchTarget(document)  # hands it out at the end only
    now = document
    for operations in patches:
        applies, expected = reference(now, operations)
        if applies:
            now = apply(now, operations)
            assert same(now, expected)
            target.apply(operations)
            quiet.apply(operations)
        else:
            with pytest.raises(PatchError):
                apply(now, operations)
            held = target.value
            with pytest.raises(PatchError):
                target.apply(operations)
            assert target.value is held
            with pytest.raises(PatchError):
                quiet.apply(operations)
        value = target.value
        assert same(value, now)
        kept += [(value, copy.deepcopy(value)), (now, copy.deepcopy(now))]
    assert same(quiet.value, now)
    assert same(patches, given_patches)
    for value, before in kept:
        assert same(value, before)
