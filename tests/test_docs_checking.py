"""The workflow that the page about checking shows: its steps, run here."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import REPOSITORY

pytestmark = pytest.mark.unmeasured

PAGE = (REPOSITORY / "docs" / "how-to" / "checking.md").read_text(encoding="utf-8")


def block(language: str, first: str) -> str:
    """The body of the block in this language whose first line ends with this."""
    (body,) = (
        body
        for body in re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
        if body.partition("\n")[0].endswith(first)
    )
    return str(body)


def checking_step(agent: str, port: int) -> str:
    """What the workflow runs besides installing, with this to start the agent."""
    workflow = yaml.safe_load(block("yaml", "agent.yml"))
    steps: list[dict[str, Any]] = workflow["jobs"]["check"]["steps"]
    installing, checking = (step["run"] for step in steps if "run" in step)
    assert installing.startswith("pip install")
    start = "aguia serve myagent:agent --port 8001"
    assert checking.startswith(f"{start} &\n")
    return str(checking).replace(start, agent).replace("8001", str(port))


@pytest.mark.parametrize(
    ("agent", "code"),
    [
        ("aguia serve myagent:agent --port 8001", 0),
        ("uvicorn faulty:app --port 8001", 1),
    ],
)
def test_the_workflow_checks_an_agent(
    agent: str, code: int, tmp_path: Path, free_port: int
) -> None:
    """Its shell and options are those that GitHub runs steps with."""
    for name in ("myagent.py", "faulty.py"):
        text = block("python", f" {name}")
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "input.json").write_text(block("json", "{"), encoding="utf-8")
    step = subprocess.Popen(
        ["bash", "-e", "-c", checking_step(agent, free_port)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        returned = step.wait(60)
    finally:
        # The agent is left running, as it is there.
        os.killpg(step.pid, signal.SIGTERM)
        said, _ = step.communicate(timeout=30)
    assert returned == code, said
    report = json.loads((tmp_path / "agent.sarif").read_text(encoding="utf-8"))
    found = [result["ruleId"] for result in report["runs"][0]["results"]]
    assert found == (["STREAM-1"] if code else [])
