"""Checks of exported programs before they are loaded.

torch's own loaders trust their files. A torch.export archive can hold pickles, compiled machine code, the name of any
function of torch to call, and expressions that are evaluated as Python; a TorchScript archive holds a program in a
language of its own, which cannot reach Python but can write files. So an archive is looked through first: tensors and a
graph of ordinary operators are let pass, anything else is refused.
"""

from __future__ import annotations

import ast
import builtins
import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

from counterfoil.core.errors import BadWeights

_OPERATORS = re.compile(
    r"torch\.ops\.(aten|prims|torchvision|quantized|quantized_decomposed)\.\w+\.\w+"
    r"|torch\.ops\.higher_order\.(cond|while_loop|wrap_with_set_grad_enabled|wrap_with_autocast)"
    r"|torch\.sym_\w+|math\.\w+"
    r"|_operator\.(getitem|add|sub|mul|truediv|floordiv|mod|pow|neg|eq|ne|lt|le|gt|ge|and_|or_|not_)"
)
_FILES = re.compile(r"\b(from_file|save)\b")  # operators that touch the disk
_COMPILED = ("data/aotinductor/", "data/executorch/")
_OBJECTS = ("custom_obj_", "opaque_obj_")
_EXPRESSIONS = (
    ast.Expression, ast.Constant, ast.Name, ast.Call, ast.keyword, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare,
    ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.Load,
)  # fmt: skip
_BUILTINS = {"max", "min", "True", "False"}


def check_export(content: bytes, file: Path) -> None:
    """Raise BadWeights if a torch.export archive holds more than tensors and a graph of ordinary operators."""
    archive = _archive(content, file)
    for name in archive.namelist():
        inner = name.partition("/")[2]
        if inner.startswith(_COMPILED):
            raise _refusal(file, f"machine code ({inner})", "export the model itself with torch.export.save")
        if Path(inner).name.startswith(_OBJECTS):
            raise _refusal(file, f"a pickled object ({inner})", "export a model without custom objects")
        if inner.endswith(".json"):
            _check_json(_parse(archive.read(name), file), file)


def check_script(content: bytes, file: Path) -> None:
    """Raise BadWeights if a TorchScript archive uses operators that read or write files."""
    archive = _archive(content, file)
    names = [name for name in archive.namelist() if "/code/" in name and name.endswith(".py")]
    if not names:
        raise BadWeights(
            f"{file}: not a TorchScript program; save one with torch.jit.save, or give weights to another kind of model"
        )
    for name in names:
        used = re.search(r"torch\.(from_file|save)\(|ops\.aten\.(from_file|save)", archive.read(name).decode("utf-8", "replace"))
        if used:
            raise _refusal(file, f"the operator {used[0].rstrip('(')}, which touches files", "save the model without it")


def _archive(content: bytes, file: Path) -> zipfile.ZipFile:
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except zipfile.BadZipFile:
        raise BadWeights(f"{file}: not an exported program, it begins with {content[:12]!r}; export the model again") from None
    if len(set(archive.namelist())) < len(archive.namelist()):
        raise _refusal(file, "two entries of one name", "export the model again")  # two readers might read two things
    return archive


def _parse(content: bytes, file: Path) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        raise BadWeights(f"{file}: damaged, part of it is no JSON; export the model again") from None


def _check_json(value: Any, file: Path) -> None:
    """Look at every operator and every expression, however deep."""
    if isinstance(value, list):
        for entry in value:
            _check_json(entry, file)
        return
    if not isinstance(value, dict):
        if isinstance(value, str) and "__enum__" in value:
            raise _refusal(file, "an input that is no tensor", "export a model that takes images alone")
        return
    for key, entry in value.items():
        if key == "target" and isinstance(entry, str) and (not _OPERATORS.fullmatch(entry) or _FILES.search(entry)):
            raise _refusal(file, f"a call of {entry}", "export a model of ordinary operators")
        if key == "expr_str" and not _harmless(str(entry)):
            raise _refusal(file, f"the expression {str(entry)[:80]!r}", "export the model again")
        if key == "path_name" and str(entry).startswith(_OBJECTS):
            raise _refusal(file, f"a pickled object ({entry})", "export a model without custom objects")
        _check_json(entry, file)


def _harmless(expression: str) -> bool:
    """Tell whether a shape expression is arithmetic on symbols and calls of plain names, none of them Python's own."""
    try:
        nodes = list(ast.walk(ast.parse(expression, mode="eval")))
    except SyntaxError:
        return False
    for node in nodes:
        if not isinstance(node, _EXPRESSIONS):
            return False
        if isinstance(node, ast.Name) and (node.id.startswith("_") or (hasattr(builtins, node.id) and node.id not in _BUILTINS)):
            return False
    return True


def _refusal(file: Path, found: str, instead: str) -> BadWeights:
    return BadWeights(f"{file}: refused, it holds {found}; {instead}")
