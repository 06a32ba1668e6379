"""JUnit XML, as CI reads it: one suite of cases, and how many of them came to what."""

from collections.abc import Sequence
from xml.etree import ElementTree

__all__ = ["suite_of"]


def suite_of(name: str, cases: Sequence[ElementTree.Element]) -> str:
    """The document of one suite; each case is a `testcase`, whose children say what it came to."""
    counts = {"tests": str(len(cases))}
    for plural, child in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        counts[plural] = str(sum(case.find(child) is not None for case in cases))
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": name, **counts})
    suite.extend(cases)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode", xml_declaration=False)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'
