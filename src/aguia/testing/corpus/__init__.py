"""Whole streams with what has to become of them, for any client: ours, others, other languages.

    from aguia.testing import corpus

    for case in corpus.cases():
        reply = ask_my_client(case.request())
        assert corpus.problems(case, reply) == []

`Case` says what a case is, `problems` compares a client's reply with what is expected, and
`run_command` asks a client in a process of its own, over a line protocol: `aguia corpus run`
does that, and `docs/how-to/corpus.md` describes both files and lines.
"""

from aguia.testing.corpus.cases import FACTS, OUTCOMES, Case, case, cases
from aguia.testing.corpus.comparison import NotAReply, problems
from aguia.testing.corpus.runner import CaseResult, run_command

__all__ = [
    "FACTS",
    "OUTCOMES",
    "Case",
    "CaseResult",
    "NotAReply",
    "case",
    "cases",
    "problems",
    "run_command",
]
