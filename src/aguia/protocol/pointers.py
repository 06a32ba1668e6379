"""JSON Pointers (RFC 6901): how errors, warnings and patches say where in a value something is."""

from collections.abc import Iterable

__all__ = ["escape", "pointer_to", "steps_of", "unescape"]


def escape(step: str) -> str:
    """The name of a member as it stands in a pointer."""
    return step.replace("~", "~0").replace("/", "~1")


def unescape(token: str) -> str:
    """The name of a member that a token of a pointer stands for."""
    return token.replace("~1", "/").replace("~0", "~")


def pointer_to(steps: Iterable[object]) -> str:
    """The pointer made of these steps: names of members, and numbers of elements."""
    return "".join(f"/{escape(str(step))}" for step in steps)


def steps_of(pointer: str) -> list[str]:
    """The steps of a pointer, which is taken to be one; none for the empty pointer."""
    return [unescape(token) for token in pointer.split("/")[1:]]
