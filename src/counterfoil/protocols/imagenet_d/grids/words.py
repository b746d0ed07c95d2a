"""Word lists: by the name of one that comes with the package, from a file, or as they stand in a grid."""

from __future__ import annotations

import csv
import difflib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from counterfoil.core.errors import BadSpec, one_line
from counterfoil.parts import labels

DATA = Path(__file__).parent / "data"


def read_words(given: Any, *, what: str) -> dict[str, str]:
    """The words of a nuisance, each with the phrase that a prompt says it by."""
    content = given if not isinstance(given, str) else _content(given, what=what, key="words")
    if isinstance(content, Mapping):
        found = {str(name): str(name if phrase is None else phrase) for name, phrase in content.items()}
    elif isinstance(content, list) and all(isinstance(word, str | int | float) for word in content):
        found = {str(word): str(word) for word in content}
        if len(found) < len(content):
            twice = next(str(word) for word in content if content.count(word) > 1)
            raise BadSpec(f"{what}: {twice!r} is listed twice; name each word once")
    else:
        raise BadSpec(f"{what}: words are a list, a mapping from name to phrase, or a file; got {content!r:.60}")
    if not found:
        raise BadSpec(f"{what}: no words; list at least one")
    _refuse_alike(list(found), what)
    return found


def named(name: str) -> Path | None:
    """The file of that name in the package."""
    path = DATA / f"{name}.yaml"
    return path if path.is_file() else None


def read_yaml(path: Path, *, what: str) -> Any:
    """The content of a YAML file, or one line on why it cannot be read."""
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise BadSpec(f"{what}: {path} cannot be read ({error.strerror}); {_known(str(path))}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadSpec(f"{what}: {path} is not YAML ({one_line(error)})") from None


def _content(given: str, *, what: str, key: str) -> Any:
    """The words in a named list or a file: YAML, CSV with a column `name`, or a text with one word a line."""
    path = named(given) or Path(given).expanduser()
    if path.suffix.lower() in (".yaml", ".yml", ".json"):
        content = read_yaml(path, what=what)
        return content[key] if isinstance(content, Mapping) and isinstance(content.get(key), list | Mapping) else content
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadSpec(f"{what}: {path} cannot be read ({error.strerror}); {_known(given)}") from None
    except UnicodeDecodeError:
        raise BadSpec(f"{what}: {path} is not a text in UTF-8; give YAML, CSV or a text with one word a line") from None
    if path.suffix.lower() != ".csv":
        return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    rows = csv.DictReader(io.StringIO(text))
    if "name" not in (rows.fieldnames or ()):
        raise BadSpec(f"{what}: {path} has the columns {', '.join(rows.fieldnames or ())}; one of them has to be 'name'")
    return [_spoken(row["name"]) for row in rows if (row["name"] or "").strip()]


def _spoken(name: str) -> str:
    """A scene's code name in words: `living_room-s` is a living room."""
    return name.strip().removesuffix("-s").replace("_", " ").replace("-", " ")


def _known(given: str) -> str:
    names = sorted(path.stem for path in DATA.glob("*.yaml"))
    near = difflib.get_close_matches(given, names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"lists of the package are {', '.join(names)}"


def _refuse_alike(names: list[str], what: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(labels.key(name), name)
        if other != name:
            raise BadSpec(f"{what}: {other!r} and {name!r} are the same name; keep one of them")
