"""Checking what agents and clients say: by the rules, all faults at once, each with its cause.

`assert_conformant` and `assert_conversation` are for tests, `Checker` for programs, and the
command `aguia check` for everybody.
"""

from aguia.testing.assertions import assert_conformant, assert_conversation
from aguia.testing.checker import Checker
from aguia.testing.findings import Finding

__all__ = ["Checker", "Finding", "assert_conformant", "assert_conversation"]
