"""What tests share besides fixtures: data and folders, and when they may be missing."""

import json
import os
import shutil
from importlib.resources import files
from pathlib import Path
from typing import Any, NoReturn

import pytest

__all__ = [
    "REPOSITORY",
    "missing",
    "own_streams",
    "require_chromium",
    "require_frontend",
    "require_peers",
    "shared",
]

REPOSITORY = Path(__file__).resolve().parent.parent


def require_peers() -> Path:
    """Return the `node_modules` folder that holds the npm peers.

    That is the folder named by `AGUIA_PEERS`, else `tests/peers/node_modules`. Without Node, or
    without the folder, the test that asks is skipped; with `CI=true` it fails instead.
    """
    return _npm_packages("tests/peers", "AGUIA_PEERS")


def require_frontend() -> Path:
    """Return the `node_modules` folder of `examples/frontend`, or the one in `AGUIA_FRONTEND`.

    Skips or fails as `require_peers` does.
    """
    return _npm_packages("examples/frontend", "AGUIA_FRONTEND")


def require_chromium() -> str:
    """Return the path of Chromium or of a browser like it, or the one in `AGUIA_CHROMIUM`.

    Skips or fails as `require_peers` does.
    """
    given = os.environ.get("AGUIA_CHROMIUM")
    names = (given,) if given else ("chromium", "chromium-browser", "google-chrome")
    found = [path for name in names if (path := shutil.which(name))]
    if not found:
        missing("Chromium is missing: no tests in a browser")
    return found[0]


def missing(reason: str) -> NoReturn:
    """Skip the test for something that is not there; with `CI=true` it fails instead."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def _npm_packages(place: str, variable: str) -> Path:
    folder = Path(os.environ.get(variable) or REPOSITORY / place / "node_modules")
    if shutil.which("node") is None:
        missing(f"Node is missing: no tests with the npm packages of {place}")
    if not (folder / "@ag-ui" / "client").is_dir():
        missing(f"no npm packages in {folder}: scripts/test installs them")
    return folder.resolve()


def shared(path: str) -> Path:
    """Return a file or folder of the data that the project keeps beside the repository.

    That is `../shared`, or the folder named by `AGUIA_SHARED`. The test that asks for what is not
    there is skipped: a clone alone does not have it.
    """
    found = Path(os.environ.get("AGUIA_SHARED") or REPOSITORY.parent / "shared") / path
    if not found.exists():
        pytest.skip(f"{path} is not there: no shared data beside the repository")
    return found


def own_streams() -> dict[str, dict[str, Any]]:
    """Return the files of the corpus that the package holds, by their names."""
    folder = files("aguia.testing.corpus") / "streams"
    found = {
        file.name.removesuffix(".json"): json.loads(file.read_text(encoding="utf-8"))
        for file in folder.iterdir()
    }
    return dict(sorted(found.items()))
