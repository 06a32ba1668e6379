"""What a message asks the assistant to do: a command, a question, or something else."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from aguia.protocol.content import text_of
from aguia.protocol.messages import Message, UserMessage

__all__ = ["MAX_REQUEST", "Request", "last_user_text", "understand"]

MAX_REQUEST: Final = 500
"""How many characters of a message are looked at."""

Verb: TypeAlias = Literal[
    "find", "read", "tree", "count", "replace", "open", "ask", "help", "unknown"
]


@dataclass(frozen=True, slots=True)
class Request:
    """What to do (`verb`), and with what: the rest of the message, or the words to look for.

    For `replace` the argument is the file, and the words are the text to find and the one to put
    in its place; there are none when the message does not say it in full. `find`, `read` and
    `open` have no argument then.
    """

    verb: Verb
    argument: str = ""
    words: tuple[str, ...] = ()


# fmt: off
# Words that say how a question is put, and not what it is about.
COMMON_WORDS: Final = frozenset(
    [
        "a", "about", "all", "am", "an", "and", "any", "are", "as", "at", "be", "been", "by",
        "can", "come", "comes", "could", "did", "do", "does", "doing", "done", "every", "file",
        "files", "find", "folder", "for", "from", "get", "give", "go", "has", "have", "here",
        "how", "if", "in", "is", "it", "its", "kind", "let", "like", "line", "lines", "list",
        "look", "made", "make", "many", "me", "much", "my", "of", "on", "one", "or", "our",
        "out", "please", "project", "repo", "repository", "show", "some", "tell", "than",
        "that", "the", "their", "them", "there", "these", "they", "thing", "things", "this",
        "those", "to", "up", "us", "use", "used", "uses", "was", "we", "were", "what", "when",
        "where", "which", "who", "whom", "whose", "why", "will", "with", "would", "you", "your",
    ]
)

QUESTION_WORDS: Final = frozenset(
    [
        "are", "can", "could", "did", "do", "does", "how", "is", "list", "show", "tell", "was",
        "were", "what", "when", "where", "which", "who", "why",
    ]
)
# fmt: on

# `replace X with Y in FILE`: each in quotation marks of some kind, or bare. Y may be empty.
_BARE: Final = r"\S(?:.*?\S)?"
_QUOTED: Final = r"\"{0}\"|'{0}'|`{0}`|“{0}”"
REPLACE: Final = re.compile(
    rf"({_QUOTED.format('.+?')}|{_BARE})\s+with\s+({_QUOTED.format('.*?')}|{_BARE})"
    rf"\s+in\s+({_QUOTED.format('.+?')}|{_BARE})"
)

# A word's form matters less than its stem: "tested" is to find "test" and "tests".
ENDINGS: Final = ("ings", "ing", "ers", "ied", "ies", "ed", "es", "s")


def last_user_text(messages: Sequence[Message]) -> str:
    """The text of the last message a user wrote; empty when there is none.

    Of a message in parts, the text parts count.
    """
    for message in reversed(messages):
        if isinstance(message, UserMessage):
            return text_of(message.content)
    return ""


def understand(text: str) -> Request:
    """Reads a message as a command, else as a question, else as neither."""
    # Half a surrogate pair can come in and must not go out again.
    whole = text.encode("utf-8", "replace").decode().strip()
    text = whole[:MAX_REQUEST]
    line = text.split("\n", 1)[0].strip()
    first, _, rest = line.partition(" ")
    argument = _unquoted(rest.strip())
    match first.casefold().rstrip(":"):
        case "find":
            return Request("find", argument)
        case "read":
            return Request("read", argument)
        case "open":
            return Request("open", argument)
        case "replace":
            # Of a message that is too long nobody knows what is missing.
            return _replacement(rest.strip() if text == whole else "")
        case "tree":
            return Request("tree", argument)
        case "count":
            return Request("count", argument)
        case "help" | "?" | "/help":
            return Request("help")
        case word if text.endswith("?") or word.rstrip("',") in QUESTION_WORDS:
            words = _salient(text)
            return Request("ask", text, words) if words else Request("help")
    return Request("unknown", text)


def _replacement(text: str) -> Request:
    """What `replace` is followed by; without words when it is not all there."""
    found = REPLACE.fullmatch(text)
    if found is None:
        return Request("replace")
    old, new, file = (_unquoted(part, empty=True) for part in found.groups())
    return Request("replace", file, (old, new))


def _unquoted(text: str, *, empty: bool = False) -> str:
    """Without the quotation marks around the whole of it, unless nothing would be left."""
    if len(text) > (1 if empty else 2) and (text[0], text[-1]) in {
        ('"', '"'),
        ("'", "'"),
        ("`", "`"),
        ("“", "”"),
    }:
        return text[1:-1]
    return text


def _salient(text: str) -> tuple[str, ...]:
    """The words that a question is about, as stems, at most four of them."""
    words: list[str] = []
    for found in re.findall(r"[^\W_][\w.-]*", text):
        word = found.rstrip(".-")
        # What is written like a name in code is looked for as it is written.
        stem = word if re.search(r"[_.\d-]|[a-z][A-Z]", word) else _stem(word.casefold())
        if word.casefold() not in COMMON_WORDS and len(stem) > 1 and stem not in words:
            words.append(stem)
    return tuple(words[:4])


def _stem(word: str) -> str:
    for ending in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word.removesuffix(ending)
    return word
