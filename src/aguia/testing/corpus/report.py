"""What came of asking a client about the corpus, as JSON and as JUnit XML."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from aguia.protocol.errors import printable
from aguia.testing.corpus.cases import Case
from aguia.testing.corpus.runner import CaseResult
from aguia.testing.junit import suite_of

__all__ = ["as_json", "as_junit", "counts", "described"]


def counts(results: Sequence[CaseResult]) -> dict[str, int]:
    """How many results there are of each status."""
    found = Counter(result.status for result in results)
    return {status: found[status] for status in ("passed", "failed", "error", "known", "skipped")}


def described(case: Case) -> dict[str, Any]:
    """What a case is, as plain JSON."""
    return {
        "case": case.name,
        "rules": list(case.rules),
        "outcome": case.outcome,
        "description": case.description,
    }


def as_json(results: Sequence[CaseResult], version: str) -> str:
    """All results as one JSON document."""
    document = {
        "tool": {"name": "aguia", "version": version},
        "counts": counts(results),
        "results": [
            {
                **described(result.case),
                "status": result.status,
                "problems": list(result.problems),
                "seconds": round(result.seconds, 3),
                "reply": result.reply,
            }
            for result in results
        ],
    }
    return json.dumps(document, indent=2)


def as_junit(results: Sequence[CaseResult]) -> str:
    """All results as JUnit XML, a test case for each."""
    cases = []
    tags = {"failed": "failure", "error": "error", "known": "skipped", "skipped": "skipped"}
    for result in results:
        area = result.case.name.partition("-")[0]
        case = ElementTree.Element(
            "testcase",
            classname=f"aguia.corpus.{area}",
            name=result.case.name,
            time=f"{result.seconds:.3f}",
        )
        if result.status in tags:
            lines = [printable(problem) for problem in result.problems]
            reason = ElementTree.SubElement(case, tags[result.status], message=lines[0])
            reason.text = "\n".join([*lines, f"rules: {', '.join(result.case.rules)}"])
        cases.append(case)
    return suite_of("aguia corpus", cases)
