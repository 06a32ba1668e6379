"""The rooms of the package: who may import whom, and what `import aguia` brings along."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support import REPOSITORY


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the sources with the contracts, to break."""
    shutil.copytree(
        REPOSITORY / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", ".*")
    )
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    return tmp_path


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(
                sys.executable,
                "-c",
                "from importlinter.cli import lint_imports_command as run; run()",
            ),
            "--no-cache",
            "--no-logo",
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "src"), "NO_COLOR": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def add_import(folder: Path, room: str, line: str) -> None:
    """Write an import into a room, in a module of its own where the room is a package."""
    package = folder / "src" / "aguia" / room
    if package.is_dir():
        (package / "astray.py").write_text(f"{line}\n", encoding="utf-8")
    else:
        module = package.with_suffix(".py")
        module.write_text(f"{module.read_text(encoding='utf-8')}\n{line}\n", encoding="utf-8")


def test_the_rooms_keep_to_the_contracts(copy: Path) -> None:
    result = lint_imports(copy)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "2 kept, 0 broken" in result.stdout


@pytest.mark.parametrize(
    ("room", "line", "importer"),
    [
        ("protocol", "import aguia.codec", "aguia.protocol.astray -> aguia.codec"),
        ("codec", "from aguia import pipeline", "aguia.codec.astray -> aguia.pipeline"),
        ("pipeline", "import aguia.conversation", "aguia.pipeline.astray -> aguia.conversation"),
        ("consumer", "import aguia.client", "aguia.consumer -> aguia.client"),
        ("client", "import aguia.server", "aguia.client.astray -> aguia.server"),
        ("server", "import aguia.client", "aguia.server.astray -> aguia.client"),
        ("server", "import aguia.cli", "aguia.server.astray -> aguia.cli"),
        ("client", "import aguia.testing", "aguia.client.astray -> aguia.testing"),
        ("protocol", "import httpx", "aguia.protocol.astray -> httpx"),
        ("codec", "import threading", "aguia.codec.astray -> threading"),
        ("conversation", "from asyncio import Lock", "aguia.conversation.astray -> asyncio"),
        ("producer", "import anyio", "aguia.producer -> anyio"),
    ],
)
def test_a_wrong_import_is_refused(copy: Path, room: str, line: str, importer: str) -> None:
    add_import(copy, room, line)
    result = lint_imports(copy)
    assert result.returncode == 1, result.stdout + result.stderr
    assert importer in result.stdout


def test_a_module_outside_the_rooms_is_refused(copy: Path) -> None:
    (copy / "src" / "aguia" / "attic.py").write_text("", encoding="utf-8")
    result = lint_imports(copy)
    assert result.returncode != 0
    assert "attic" in result.stdout + result.stderr


def test_importing_the_package_brings_only_msgspec_along() -> None:
    """What else the package needs is loaded by who uses it, a client or a server."""
    code = "import sys, aguia; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()
    assert "aguia" in loaded
    assert (
        set(loaded) & {"anyio", "asyncio", "httpx", "starlette", "uvicorn", "rich", "typer"}
        == set()
    )


def test_the_package_is_typed() -> None:
    assert (REPOSITORY / "src" / "aguia" / "py.typed").is_file()
