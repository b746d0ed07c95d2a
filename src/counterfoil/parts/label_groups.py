"""Many classes as one: groups of class names, as models and data sets take them.

Groups are a mapping from the new class to its members, a JSON or YAML file with one, or `imagenet-9`, the nine classes of
the paper. A member is a name, an alias such as a WordNet id, a number counted from 0, or a range of numbers "151-268".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from counterfoil.core.errors import LabelMismatch, one_line
from counterfoil.parts import imagenet, labels

_RANGE = re.compile(r"\s*(\d+)\s*-\s*(\d+)\s*")
_KNOWN = {"imagenet-9": imagenet.nine_classes}

GroupSpec = str | Mapping[str, Any]
Member = str | int


def read(groups: GroupSpec) -> dict[str, list[Member]]:
    """The members of each group, ranges written out."""
    if isinstance(groups, str):
        content = _KNOWN[groups]() if groups in _KNOWN else _from_file(Path(groups).expanduser())
        return read(content)
    if not groups:
        raise LabelMismatch("groups: none given; write a mapping from each class to its members")
    return {str(name): _members(str(name), members) for name, members in groups.items()}


def resolve(
    groups: Mapping[str, Sequence[Member]],
    offered: Sequence[str],
    *,
    what: str,
    aliases: labels.Aliases | None = None,
    partial: bool = False,
) -> dict[str, list[int]]:
    """The offered classes in each group, by number. With `partial`, members and groups that are not offered are left out."""
    numbers = _by_name([member for members in groups.values() for member in members], offered, aliases, what, partial)
    found: dict[str, list[int]] = {}
    home: dict[int, str] = {}
    for group, members in groups.items():
        held = [numbers[member] for member in members if member in numbers]
        for number in held:
            if number in home:
                both = f"is named twice in {group!r}" if home[number] == group else f"is in {home[number]!r} and {group!r}"
                raise LabelMismatch(f"{what}: its class {offered[number]!r} {both}; name each class once")
            home[number] = group
        if held:
            found[group] = held
    if len(found) < 2:
        raise LabelMismatch(f"{what}: {len(found)} of the {len(groups)} groups have a member among its classes; two are needed")
    return found


def _by_name(
    members: Sequence[Member], offered: Sequence[str], aliases: labels.Aliases | None, what: str, partial: bool
) -> dict[Member, int]:
    """The number of each member that is offered."""
    for member in members:
        if isinstance(member, int) and not 0 <= member < len(offered):
            raise LabelMismatch(f"{what}: has classes 0 to {len(offered) - 1}, a group names number {member}")
    wanted = list(dict.fromkeys(member for member in members if isinstance(member, str)))
    if partial:
        held = {labels.key(part) for name in offered for part in (name, *labels.split(name))}
        held |= {labels.key(name) for names in aliases or () for name in names}
        wanted = [name for name in wanted if labels.key(name) in held]
    matched = zip(wanted, labels.match(wanted, offered, what=what, aliases=aliases), strict=True)
    return {**{member: member for member in members if isinstance(member, int)}, **dict(matched)}


def _members(group: str, members: object) -> list[Member]:
    listed = members if isinstance(members, list | tuple) else [members]
    found: list[Member] = []
    for member in listed:
        span = _RANGE.fullmatch(member) if isinstance(member, str) else None
        if span:
            first, last = int(span[1]), int(span[2])
            if last < first:
                raise LabelMismatch(f"groups: {group!r} has the range {member!r}, which ends before it begins")
            found.extend(range(first, last + 1))
        elif isinstance(member, str | int) and not isinstance(member, bool):
            found.append(member)
        else:
            raise LabelMismatch(f"groups: a member of {group!r} is a name, a number or a range, got {member!r}")
    if not found:
        raise LabelMismatch(f"groups: {group!r} has no members")
    return found


def _from_file(path: Path) -> Mapping[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8-sig"))  # JSON is YAML
    except OSError as error:
        known = ", ".join(_KNOWN)
        raise LabelMismatch(f"groups: {path} cannot be read ({error.strerror}); give a file or one of {known}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise LabelMismatch(f"groups: {path} is neither JSON nor YAML ({one_line(error)})") from None
    if not isinstance(content, Mapping):
        raise LabelMismatch(f"groups: {path} holds a {type(content).__name__}; write a mapping from each class to its members")
    return content
