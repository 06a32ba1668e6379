"""The directive `public-names`: the reference of the public names of a module.

    ```{public-names} aguia.server
    ```

documents what the module lists in `__all__`, under the names that they are imported by. With
`:from: aguia.protocol.events` only what that module lists as well, so that a package's many names
can be on several pages; `:names:` gives them one by one, and those after `:first:` come first.

Classes and functions are autodoc's. Their source has more than autodoc finds at run time: the
docstrings of aliases and constants, and signatures in the words of the aliases, where otherwise
a union of 31 events would stand.
"""

import ast
import copy
import inspect
import re
import sys
from functools import cache
from importlib import import_module
from typing import Any, ClassVar

import msgspec
from docutils import nodes
from docutils.parsers.rst import Parser, directives
from docutils.utils import new_document
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

__all__ = ["MODULES", "PublicNames", "public_names", "setup"]

MODULES = (
    "aguia",
    "aguia.client",
    "aguia.middleware",
    "aguia.producer",
    "aguia.protocol.rules",
    "aguia.server",
    "aguia.sync",
    "aguia.testing",
    "aguia.testing.corpus",
    "aguia.testing.probes",
)
"""The modules whose names are public."""

INTERNAL = {
    "Execution": ("drive",),
    "GracefulServer": ("handle_exit", "serve"),
    "Run": ("close", "close_owned_by", "flush", "is_open", "log_exception", "send"),
    "RunStream": ("close_after", "leave", "left", "next_batch", "settle"),
}
"""Members that other rooms of the package use and nobody else."""

GIVEN = (
    "Activity",
    "Conversation",
    "Messages",
    "ReasoningMessageStream",
    "ReasoningSpan",
    "ReasoningStream",
    "Resume",
    "Run",
    "RunStream",
    "Speaker",
    "Step",
    "Subagent",
    "TextStream",
    "ToolCallStream",
)
"""Classes whose instances one is given, so that their constructors are of no interest."""

LONGEST_VALUE = 200
"""Characters of a constant's source that are shown."""


class PublicNames(SphinxDirective):
    """Documents public names with autodoc."""

    required_arguments = 1
    option_spec: ClassVar = dict.fromkeys(("first", "from", "names"), directives.unchanged)

    def run(self) -> list[nodes.Node]:
        """Return what is to be said of each name."""
        [place] = self.arguments
        module = import_module(place)
        lines = [f".. py:currentmodule:: {place}", ""]
        names = public_names(place, self.options.get("from"), self.options.get("names"))
        first = self.options.get("first", "").split()
        for name in [*first, *(name for name in names if name not in first)]:
            lines += described(place, name, getattr(module, name))
        # The page around this is Markdown; autodoc speaks reStructuredText.
        document = new_document(f"{self.env.docname}:{place}", self.state.document.settings)
        document.reporter = self.state.document.reporter
        Parser().parse("\n".join(lines), document)
        return list(document.children)


def public_names(place: str, home: str | None = None, names: str | None = None) -> list[str]:
    """The names that a `public-names` directive documents."""
    if names is not None:
        return names.split()
    listed = import_module(home or place).__all__
    return [name for name in listed if not name.startswith("__")]


def described(place: str, name: str, value: Any) -> list[str]:
    """The directives, as lines, that document one name of a module."""
    if inspect.isclass(value):
        lines = [f".. autoclass:: {place}.{name}", ""]
        if any(map(is_shown, value.__bases__)):
            lines.insert(1, "   :show-inheritance:")
        bases = value.__mro__[1:]
        public = [base for base in bases if base in public_values()]
        hidden = [
            base
            for base in bases
            if is_hidden(base) and not any(issubclass(other, base) for other in public)
        ]
        if hidden:
            # What it has from there is nowhere else; autodoc is told where not to look.
            others = [base.__name__ for base in bases if base not in hidden]
            lines.insert(1, f"   :inherited-members: {','.join(others)}")
        return lines
    if inspect.isroutine(value):
        return [f".. autofunction:: {place}.{name}", ""]
    source, docstring = assignment(name, value)
    lines = [f".. py:data:: {name}"]
    if source and len(source) <= LONGEST_VALUE:
        lines.append(f"   :value: {source}")
    return [*lines, "", *(f"   {line}" for line in docstring.splitlines()), ""]


@cache
def public_values() -> list[Any]:
    """Everything that has a public name."""
    return [
        getattr(import_module(module), name) for module in MODULES for name in public_names(module)
    ]


def is_hidden(base: type) -> bool:
    """Whether a class is of this package and has no public name."""
    return base.__module__.partition(".")[0] == "aguia" and base not in public_values()


def is_shown(base: type) -> bool:
    """Whether it says anything about a class that it has this base."""
    return base is not object and not is_hidden(base)


def assignment(name: str, value: Any) -> tuple[str, str]:
    """Where a module of the package assigns a name: the source of its value, and its docstring.

    Both are empty for what comes from elsewhere, as `UNSET` from msgspec.
    """
    for module_name in sorted(sys.modules):
        module = sys.modules[module_name]
        if module_name.partition(".")[0] != "aguia" or getattr(module, name, None) is not value:
            continue
        body = parsed(module_name).body
        for node, following in zip(body, [*body[1:], None], strict=True):
            match node:
                case ast.Assign(targets=[ast.Name(id=found)], value=expression):
                    pass
                case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as expression):
                    pass
                case _:
                    continue
            if found == name:
                match following:
                    case ast.Expr(value=ast.Constant(value=str(docstring))):
                        return ast.unparse(expression), inspect.cleandoc(docstring)
                return ast.unparse(expression), ""
    return "", ""


@cache
def parsed(module_name: str) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(inspect.getsource(sys.modules[module_name]))


def as_written(
    app: Sphinx, kind: str, name: str, value: Any, options: Any, signature: Any, returns: Any
) -> tuple[str, str | None] | None:
    """The signature of a function or a class, in the words of its source."""
    if inspect.isclass(value):
        if issubclass(value, msgspec.Struct):
            return fields_as_written(value), None
        if value.__name__ in GIVEN:
            return "", None
        value = value.__init__
        returns = None
    if signature is None or not inspect.isfunction(value) or "__wrapped__" in vars(value):
        return None
    module = sys.modules.get(value.__module__)
    if module is None or value.__module__.partition(".")[0] != "aguia":
        return None
    node = definition(value.__module__, value.__code__.co_firstlineno)
    if node is None:
        return None
    arguments = node.args
    for listed in (arguments.posonlyargs, arguments.args):
        if listed and listed[0].arg in ("self", "cls"):
            del listed[0]
            break
    if returns is not None and node.returns is not None:
        returns = ast.unparse(node.returns).strip("'")
    return f"({ast.unparse(arguments)})", returns


def definition(module: str, line: int) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """A copy of the definition of a function, which begins at that line, decorators included."""
    for node in ast.walk(parsed(module)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if min([node.lineno, *(each.lineno for each in node.decorator_list)]) == line:
            return copy.deepcopy(node)
    return None


def fields_as_written(value: type[msgspec.Struct]) -> str:
    """The own fields of a value of the protocol; what its bases have is said at these."""
    found = []
    for node in parsed(value.__module__).body:
        if isinstance(node, ast.ClassDef) and node.name == value.__name__:
            for line in node.body:
                match line:
                    case ast.AnnAssign(target=ast.Name(id=field), annotation=annotation):
                        if field in value.__struct_fields__:
                            default = f" = {ast.unparse(line.value)}" if line.value else ""
                            found.append(f"{field}: {ast.unparse(plain(annotation))}{default}")
    return f"(*, {', '.join(found)})" if found else "()"


def plural_of_code(
    app: Sphinx, kind: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Let `Interrupt`s end a word, which reStructuredText has an own way to write."""
    lines[:] = [re.sub(r"(?<!`)(`[^`]+`)(?=[a-z])", r"\1\\ ", line) for line in lines]


def properties_as_written() -> tuple[Any, Any]:
    """Two handlers, for before and after napoleon, which reads "words: more words" as a type."""
    written: dict[str, list[str]] = {}

    def keep(app: Sphinx, kind: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
        if kind in ("attribute", "data", "property"):
            written[name] = list(lines)

    def put_back(
        app: Sphinx, kind: str, name: str, value: Any, options: Any, lines: list[str]
    ) -> None:
        if name in written:
            lines[:] = written.pop(name)

    return keep, put_back


def skip_internal(
    app: Sphinx, kind: str, name: str, value: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out what only other rooms of the package use."""
    function = value.fget if isinstance(value, property) else value
    owner, _, member = getattr(function, "__qualname__", "").rpartition(".")
    return True if member in INTERNAL.get(owner, ()) else None


def hide_bases(app: Sphinx, name: str, value: Any, options: Any, bases: list[Any]) -> None:
    """Leave out bases without a public name."""
    bases[:] = [base for base in bases if is_shown(base)]


def plain(annotation: ast.expr) -> ast.expr:
    """A type without what only the decoder needs, and without `UnsetType`: the default says it."""
    match annotation:
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[kind, *_])):
            return plain(kind)
        case ast.BinOp(left=kind, right=ast.Name(id="UnsetType")):
            return plain(kind)
    return annotation


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive, and what it wants of autodoc."""
    app.add_directive("public-names", PublicNames)
    app.connect("autodoc-process-signature", as_written)
    keep, put_back = properties_as_written()
    app.connect("autodoc-process-docstring", keep, priority=100)
    app.connect("autodoc-process-docstring", put_back, priority=600)
    app.connect("autodoc-process-docstring", plural_of_code, priority=700)
    app.connect("autodoc-process-bases", hide_bases)
    app.connect("autodoc-skip-member", skip_internal)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
