"""The gate's answers as JUnit XML, which continuous-integration systems show as tests."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from counterfoil.metrics.gate import Check


def junit(checks: Sequence[Check], *, subject: str, notes: Sequence[str] = ()) -> bytes:
    """An XML file with a test case a check, and what is to be known of all of them."""
    failures = sum(not each.passed for each in checks)
    root = ElementTree.Element("testsuites")
    counts = {"tests": str(len(checks)), "failures": str(failures), "errors": "0", "skipped": "0"}
    suite = ElementTree.SubElement(root, "testsuite", {"name": f"counterfoil gate {subject}", **counts})
    for check in checks:
        case = ElementTree.SubElement(suite, "testcase", classname="counterfoil.gate", name=check.asked)
        if not check.passed:
            ElementTree.SubElement(case, "failure", message=check.answer, type="gate").text = f"{check.asked}: {check.answer}"
        else:
            ElementTree.SubElement(case, "system-out").text = check.answer
    if notes:
        ElementTree.SubElement(suite, "system-out").text = "\n".join(notes)
    ElementTree.indent(root)
    document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"
