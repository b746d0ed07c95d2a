"""Protocols are asked, not known by name: a fourth one is as good as the first three."""

from __future__ import annotations

import re
from pathlib import Path

from counterfoil import protocols

PACKAGE = Path(protocols.__file__).parents[1]


def test_no_module_outside_the_protocols_names_one() -> None:
    own = [folder.name for folder in (PACKAGE / "protocols").iterdir() if (folder / "results.py").exists()]
    modules = "|".join(sorted(own))
    named = re.compile(rf"""["'](?:{modules.replace("_", "-")})["']|protocols\.(?:{modules}|static)\b""")
    assert named.search('protocols.get("imagenet-d")') and named.search("from counterfoil.protocols.fmr.results import x")
    found = [
        path.relative_to(PACKAGE).as_posix()
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] != "protocols" and named.search(path.read_text())
    ]
    assert not found
