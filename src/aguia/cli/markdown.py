"""Markdown that is still arriving, as lines for a terminal.

A block (a paragraph, a list, a table, a code block) is final when the next one has begun; then
it is given out once. The last one may still become something else with its next character, so
it is given out anew each time. What is laid out is only ever this one block, so that a long
message costs what its text costs.

What an agent says is data (SEC-3). Markdown has ways of its own to spell a character, such as
`&#x202e;` or a `%1b` in a link, so what comes out of it is cleaned once more. No link is made
clickable: its target is shown. HTML is text. Single line ends stay, as people expect in a chat.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from typing import ClassVar, Final

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement, TableElement
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from aguia.cli.live import Line
from aguia.cli.safe import clean

__all__ = ["MarkdownLines", "Painter", "WrappedLines"]

MAX_BLOCK: Final = 4_000
"""A block of more characters than this is ended where its line ends, and goes on as another."""

MAX_PARSED: Final = MAX_BLOCK + 1_000
"""So many characters are parsed at a time: some of Markdown takes time by their square."""

NARROWEST: Final = 20
"""How many columns a layout takes at least; a narrower terminal breaks the lines itself."""

NO_BREAK: Final = "\u00a0"
"""Stands for a space that Markdown would drop."""

STYLES: Final = {
    "markdown.paragraph": "none",
    "markdown.h1": "bold underline",
    "markdown.h2": "bold",
    "markdown.h3": "bold",
    "markdown.h4": "bold",
    "markdown.h5": "bold",
    "markdown.h6": "bold",
    "markdown.strong": "bold",
    "markdown.em": "italic",
    "markdown.s": "strike",
    "markdown.code": "cyan",
    "markdown.link": "underline",
    "markdown.link_url": "dim",
    "markdown.item": "none",
    "markdown.item.bullet": "yellow",
    "markdown.item.number": "yellow",
    "markdown.hr": "dim",
    "markdown.block_quote": "dim",
    "markdown.table.header": "bold",
    "markdown.table.border": "dim",
}


class Painter:
    """Lays out Markdown in lines of a given width, with or without colours."""

    def __init__(self, *, styled: bool) -> None:
        self._styled = styled
        self._console = Console(
            file=StringIO(),
            force_terminal=True,
            color_system="256" if styled else None,
            theme=Theme(STYLES),
            legacy_windows=False,
            highlight=False,
            markup=False,
            emoji=False,
            width=80,
        )
        self._parser = MarkdownIt("commonmark", {"html": False})
        self._parser.enable("strikethrough").enable("table").disable("reference")
        self._parser.core.ruler.before("inline", "indentation", _keep_indentation)

    def blocks(self, source: str) -> list[int]:
        """At which line each top-level block of the source begins."""
        return [
            token.map[0]
            for token in self._parser.parse(source)
            if token.level == 0 and token.nesting >= 0 and token.map is not None
        ]

    def paint(self, source: str, width: int) -> list[Line]:
        """The source laid out for so many columns."""
        tokens = self._parser.parse(source)
        try:
            document = _Document(list(self._ready(tokens)))
            options = self._console.options.update(width=max(NARROWEST, width))
            lines = self._console.render_lines(document, options, pad=False)
        except Exception:
            # Whatever the layout does not get along with is still to be read.
            return [self._line([Segment(text)]) for text in clean(source).split("\n")]
        painted = [self._line(line) for line in lines]
        if not any(line.cells for line in painted):
            # What is nested too deep comes out empty.
            painted = [self._line([Segment(text)]) for text in clean(source).split("\n")]
        while painted and not painted[-1].cells:
            painted.pop()
        while painted and not painted[0].cells:
            painted.pop(0)
        return painted

    def lay_out(self, text: Text, width: int) -> list[Line]:
        """Text that has its styles already, broken into lines of so many columns."""
        options = self._console.options.update(width=max(NARROWEST, width), overflow="fold")
        return [self._line(line) for line in self._console.render_lines(text, options, pad=False)]

    def _line(self, segments: Sequence[Segment]) -> Line:
        written, cells = [], 0
        for segment in _stripped(segments):
            text = clean(segment.text).replace("\n", " ").replace("\t", "    ")
            cells += Segment(text).cell_length
            style = segment.style
            written.append(style.render(text) if self._styled and style and text else text)
        return Line("".join(written), cells)

    def _ready(self, tokens: Iterable[Token]) -> Iterator[Token]:
        """The tokens as they are shown: safe, links with their targets, line ends kept."""
        for token in tokens:
            token.content = clean(token.content)
            token.info = clean(token.info)
            if token.type == "image":
                yield _text(_image(token))
                continue
            if token.children:
                token.children = list(_inline(self._ready(token.children)))
            if token.type == "code_inline" and not self._styled:
                token.content = f"`{token.content}`"
            yield token


class MarkdownLines:
    """One message of Markdown as it comes in.

    Text goes in with `feed`; `take` gives out the blocks that have become final since, each laid
    out, and `rest` the one that is not yet. `end` makes that one final as well.
    """

    def __init__(self, painter: Painter) -> None:
        self._painter = painter
        self._source = ""

    def feed(self, text: str) -> None:
        """Appends text, which is clean."""
        self._source += text

    def take(self, width: int) -> Iterator[list[Line]]:
        """The blocks that nothing can change any more, as lines."""
        while True:
            head = self._source[:MAX_PARSED]
            starts = self._painter.blocks(head)
            ends = _offsets(head, starts[1:])
            if not ends and not (ends := self._forced_end(head)):
                return
            begin = 0
            blocks = []
            for end in ends:
                blocks.append(self._source[begin:end])
                begin = end
            self._source = self._source[begin:]
            yield from (self._painter.paint(block, width) for block in blocks)

    def rest(self, width: int) -> list[Line]:
        """The block that is still growing, as lines."""
        return self._painter.paint(self._source, width)

    def end(self, width: int) -> Iterator[list[Line]]:
        """All that was not given out."""
        yield from self.take(width)
        block, self._source = self._source, ""
        if lines := self._painter.paint(block, width):
            yield lines

    def split(self) -> None:
        """Forgets what `rest` showed, which stays as it is; what comes next is a new block."""
        self._source = _carried(self._source)

    def _forced_end(self, head: str) -> list[int]:
        """Where a block ends that has become too long; nowhere if it has not."""
        if len(head) <= MAX_BLOCK:
            return []
        at = head.rfind("\n", 0, MAX_BLOCK) + 1 or head.rfind(" ", 0, MAX_BLOCK) + 1 or MAX_BLOCK
        self._source = f"{head[:at]}{_carried(head[:at])}{self._source[at:]}"
        return [at]


class WrappedLines:
    """One message of plain text as it comes in, for the same use: its lines, broken at words.

    `first` stands before the first line, and marks where the text goes on after others spoke.
    """

    def __init__(self, painter: Painter, style: Style, first: str) -> None:
        self._painter = painter
        self._style = style
        self._first = first
        self._prefix = first
        self._source = ""

    def feed(self, text: str) -> None:
        """Appends text, which is clean."""
        self._source += text

    def take(self, width: int) -> Iterator[list[Line]]:
        """The lines that nothing can change any more; empty ones at the end may be the last."""
        done = self._source.rstrip("\n").rfind("\n") + 1
        finished, self._source = self._source[:done], self._source[done:]
        for line in finished.split("\n")[:-1]:
            yield self._laid_out(line, width)

    def rest(self, width: int) -> list[Line]:
        """The line that is still growing."""
        bare = self._source.rstrip("\n")
        return self._lay_out(bare, width) if bare else []

    def end(self, width: int) -> Iterator[list[Line]]:
        """All that was not given out."""
        yield from self.take(width)
        if lines := self.rest(width):
            yield lines
        self._source = ""

    def split(self) -> None:
        """Forgets what `rest` showed, which stays as it is."""
        self._source = ""
        self._prefix = f"… {self._first}"

    def _laid_out(self, line: str, width: int) -> list[Line]:
        lines = self._lay_out(line, width)
        self._prefix = ""
        return lines

    def _lay_out(self, line: str, width: int) -> list[Line]:
        text = f"{self._prefix}{line.lstrip(' ')}" if self._prefix else line
        return self._painter.lay_out(Text(text, self._style), width)


def _offsets(text: str, lines: Sequence[int]) -> list[int]:
    """Where these lines of the text begin."""
    begins = [0, *(match.end() for match in re.finditer("\n", text))]
    return [begins[line] for line in lines]


_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_TABLE: Final = re.compile(r"([^\n]*\|[^\n]*\n[ |:-]*-[ |:-]*\n)(?:[^\n]*\S[^\n]*\n?)*")


def _carried(source: str) -> str:
    """What opens the code block or the table that the source breaks off in; empty if it does not.

    What follows is then one as well.
    """
    source = source.lstrip("\n")
    if table := _TABLE.fullmatch(source):
        return table[1]
    first, _, rest = source.partition("\n")
    match = _FENCE.fullmatch(first)
    if match is None or (match[1][0] == "`" and "`" in match[2]):
        return ""
    mark = match[1]
    closing = re.compile(rf" {{0,3}}{re.escape(mark[0])}{{{len(mark)},}}\s*")
    return "" if any(map(closing.fullmatch, rest.split("\n"))) else f"{first}\n"


def _keep_indentation(state: StateCore) -> None:
    """Has the lines of a paragraph keep their indentation, as text in a chat needs it."""
    lines: list[str] | None = None
    for token in state.tokens:
        if token.type != "inline":
            continue
        if "\n " in token.content:
            token.content = re.sub(
                r"(?<=\n) +", lambda spaces: NO_BREAK * len(spaces[0]), token.content
            )
        if token.level == 1 and token.map is not None and token.content[:1] != "#":
            lines = state.src.split("\n") if lines is None else lines
            first = lines[token.map[0]]
            if first.lstrip(" ").startswith(token.content[:1]):
                token.content = NO_BREAK * (len(first) - len(first.lstrip(" "))) + token.content


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _image(token: Token) -> str:
    """An image in words: what it shows, and where it is."""
    source = clean(str(token.attrs.get("src", "")))
    shown = clean("".join(child.content for child in token.children or ()))
    return f"[image: {shown or 'without a name'}] ({source})"


def _inline(tokens: Iterable[Token]) -> Iterator[Token]:
    """The content of a block: links as their text and their target, line ends as such."""
    href, label, broken = "", "", True
    for token in tokens:
        if broken and token.type == "text":
            bare = token.content.lstrip(NO_BREAK)
            token.content = " " * (len(token.content) - len(bare)) + bare
        broken = token.type in ("softbreak", "hardbreak")
        label += token.content
        if token.type == "softbreak":
            yield Token("hardbreak", "br", 0)
        elif token.type == "link_open":
            href, label = clean(str(token.attrs.get("href", ""))), ""
            yield Token("shown_open", "link", 1)
        elif token.type == "link_close":
            yield Token("shown_close", "link", -1)
            if href.removeprefix("mailto:") != label:
                yield Token("shown_open", "link_url", 1)
                yield _text(f" ({href})")
                yield Token("shown_close", "link_url", -1)
        elif token.tag == "strong" and token.markup == "__":
            # As in `__init__.py`: the mark may be meant.
            yield from (token, _text("__")) if token.nesting > 0 else (_text("__"), token)
        else:
            yield token


def _stripped(segments: Sequence[Segment]) -> list[Segment]:
    """A line without the spaces at its end, which would be in the way of who copies it."""
    left = [segment for segment in segments if not segment.control]
    while left and not left[-1].text.rstrip(" "):
        left.pop()
    if left:
        left[-1] = Segment(left[-1].text.rstrip(" "), left[-1].style)
    return left


class _Heading(Heading):
    """A heading with its mark, at the left."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        mark = "#" * int(self.tag.removeprefix("h"))
        yield Text.assemble((f"{mark} ", "dim"), self.text)


class _CodeBlock(CodeBlock):
    """Code in the terminal's own colours, indented, with nothing around it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip("\n")
        syntax = Syntax(
            code,
            self.lexer_name,
            theme="ansi_dark",
            background_color="default",
            word_wrap=True,
            tab_size=4,
        )
        width = max(NARROWEST, options.max_width - 2)
        for line in console.render_lines(syntax, options.update(width=width), pad=False):
            yield Segment("  ")
            yield from line
            yield Segment.line()


class _TableElement(TableElement):
    """A table whose cells are broken rather than cut."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            show_edge=False,
            style="markdown.table.border",
            header_style="markdown.table.header",
        )
        if self.header is not None and self.header.row is not None:
            for cell in self.header.row.cells:
                table.add_column(cell.content, justify=cell.justify, overflow="fold")
        if self.body is not None:
            for row in self.body.rows:
                table.add_row(*(cell.content for cell in row.cells))
        yield table


class _Document(Markdown):
    """Tokens that are ready to be shown."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _CodeBlock,
        "code_block": _CodeBlock,
        "table_open": _TableElement,
    }
    inlines: ClassVar[set[str]] = {*Markdown.inlines, "link", "link_url"}  # type: ignore[misc]

    def __init__(self, tokens: list[Token]) -> None:
        super().__init__("", hyperlinks=False, style=Style.null())
        self.parsed = tokens
