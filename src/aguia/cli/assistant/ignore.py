"""Which files of a folder git would leave out: the rules of its .gitignore files.

pathspec reads each line; this module decides which line has the last word. It differs from
pathspec's own verdict in one thing: a walk that never enters an ignored folder, as git's, has
to ask of each entry whether a line names the entry itself, and not whether it names a folder
above it. Otherwise `*.log` and `!keep` would bring back the logs in a folder called keep.
"""

from dataclasses import dataclass
from typing import TypeAlias

from pathspec import GitIgnoreSpec

__all__ = ["Rules"]

_MAX_STARS = 4
"""How many stars one name of a pattern may have: each lets the search try every length, and a
folder from a stranger could hold a pattern that never comes to an end."""

Parts: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Line:
    """One pattern, and the depth of the folder whose .gitignore file holds it."""

    depth: int
    spec: GitIgnoreSpec
    ignores: bool
    by_path: bool  # held against the path from its folder, not against the name alone
    inside: bool  # names everything below a folder, and not the folder (`name/**`)

    def names(self, parts: Parts, *, folder: bool) -> bool:
        """Whether the pattern names the entry itself."""
        path = "/".join(parts[self.depth :] if self.by_path else parts[-1:]) + "/" * folder
        result = self.spec.patterns[0].match_file(path)
        if result is None:
            return False
        end: int = result.match.end()
        if not self.by_path:
            return True
        return end < len(path) if self.inside else end == len(path)


@dataclass(frozen=True, slots=True)
class Rules:
    """The lines that apply in one folder, outermost file first."""

    lines: tuple[_Line, ...] = ()

    def ignore(self, parts: Parts, *, folder: bool) -> bool:
        """Whether git leaves out what lies at `parts`, given that it enters the folder around it.

        The last line that names it decides, and those of an inner file come after an outer's.
        """
        for line in reversed(self.lines):
            if line.names(parts, folder=folder):
                return line.ignores
        return False

    def with_file(self, depth: int, lines: list[str]) -> "Rules":
        """These rules and those of a .gitignore file that lies `depth` folders below the root.

        A line that is no pattern sets no rule.
        """
        read = (_read(depth, line) for line in lines)
        return Rules((*self.lines, *(line for line in read if line is not None)))


def _read(depth: int, line: str) -> _Line | None:
    bare = line.rstrip(" \r")
    if bare.endswith("\\") and bare != line:
        bare += " "  # a space that a backslash protects
    try:
        if max(part.count("*") for part in bare.split("/")) > _MAX_STARS:
            return None
        spec = GitIgnoreSpec.from_lines([bare])
    except ValueError:
        return None
    if not spec.patterns or spec.patterns[0].include is None:
        return None
    body = bare.removeprefix("!").removesuffix("/")
    while body.startswith("**/"):
        body = body[3:]
    return _Line(
        depth=depth,
        spec=spec,
        ignores=spec.patterns[0].include,
        by_path="/" in body,
        inside=body.endswith("/**"),
    )
