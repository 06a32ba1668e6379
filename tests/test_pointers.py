"""JSON Pointers: where in a value something is."""

from aguia.protocol.pointers import escape, pointer_to, steps_of, unescape


def test_names_with_the_signs_of_a_pointer_come_back_as_they_were() -> None:
    """RFC 6901, section 3: `~` first when written, last when read."""
    assert escape("a/b~1") == "a~1b~01"
    for name in ("", "a", "a/b", "m~n", "~1", "~01", "/~/"):
        assert unescape(escape(name)) == name
        assert steps_of(pointer_to([name, 0])) == [name, "0"]


def test_the_whole_value_has_no_steps() -> None:
    assert pointer_to([]) == ""
    assert steps_of("") == []
    assert steps_of("/") == [""]
