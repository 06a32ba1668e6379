"""Checking what agents and clients say, and having them say what is wanted, faults included.

- `assert_conformant` and `assert_conversation` are for tests, `Checker` for programs, and the
  command `aguia check` for everybody;
- `ScriptedAgent` answers runs as told, `ReplayApp` with what was recorded;
- `FaultyApp` and `FaultInjector` put faults into streams; `FAULTS` lists them;
- `aguia.testing.probes` is what `aguia probe` asks of a server;
- `aguia.testing.corpus` holds streams with a known outcome, for clients;
- with pytest there are the fixtures `agui_client`, `scripted_agent` and `check_stream`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from aguia.testing.assertions import assert_conformant, assert_conversation
from aguia.testing.checker import Checker
from aguia.testing.findings import Finding

if TYPE_CHECKING:
    from aguia.testing.faults import FAULTS, BrokenOff, Fault, FaultInjector, FaultyApp
    from aguia.testing.replay import ReplayApp
    from aguia.testing.scripts import ScriptedAgent

__all__ = [
    "FAULTS",
    "BrokenOff",
    "Checker",
    "Fault",
    "FaultInjector",
    "FaultyApp",
    "Finding",
    "ReplayApp",
    "ScriptedAgent",
    "assert_conformant",
    "assert_conversation",
]

if not TYPE_CHECKING:
    _ELSEWHERE = {
        **dict.fromkeys(("FAULTS", "BrokenOff", "Fault", "FaultInjector", "FaultyApp"), "faults"),
        "ReplayApp": "replay",
        "ScriptedAgent": "scripts",
    }

    def __getattr__(name: str) -> Any:
        # Who only checks streams needs no server.
        if name in _ELSEWHERE:
            return getattr(import_module(f"aguia.testing.{_ELSEWHERE[name]}"), name)
        raise AttributeError(f"module 'aguia.testing' has no attribute {name!r}")
