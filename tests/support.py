"""What tests share besides fixtures: data and folders, and when they may be missing."""

import json
import os
import shutil
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

__all__ = ["REPOSITORY", "own_streams", "require_peers", "shared"]

REPOSITORY = Path(__file__).resolve().parent.parent


def require_peers() -> Path:
    """Return the `node_modules` folder that holds the npm peers.

    That is the folder named by `AGUIA_PEERS`, else `tests/peers/node_modules`. Without Node, or
    without the folder, the test that asks is skipped; with `CI=true` it fails instead.
    """
    folder = Path(os.environ.get("AGUIA_PEERS") or REPOSITORY / "tests" / "peers" / "node_modules")
    if shutil.which("node") is None:
        reason = "Node is missing: no tests against npm peers"
    elif not (folder / "@ag-ui" / "client").is_dir():
        reason = f"no npm peers in {folder}: scripts/test installs them"
    else:
        return folder.resolve()
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


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
