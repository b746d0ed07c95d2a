"""Options that several commands share, each declared once: the specification of a run, a device, a file for results as JSON."""

from __future__ import annotations

import errno
import inspect
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from counterfoil import protocols
from counterfoil.cli import echo
from counterfoil.core import spec as specs
from counterfoil.core.errors import UsageError, printable
from counterfoil.protocols.base import Execution
from counterfoil.store.files import canonical

Text = str | None
Number = int | None
Texts = list[str] | None

OneRun = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]
ManyRuns = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1 …")]
PartSettings = Annotated[Texts, typer.Option("--set", help="KEY=VALUE for any option of the part.")]
Command = Callable[..., None]


def takes(shared: Callable[..., Any], *, last: bool = False) -> Callable[[Command], Command]:
    """Give a command the options of `shared` as well, `last` or first; what `shared` returns is the command's first argument."""

    def decorate(command: Command) -> Command:
        common, own = _parameters(shared), _parameters(command)[1:]

        def run(*first: Any, **values: Any) -> None:
            made = shared(**{each.name: values.pop(each.name, each.default) for each in common})
            command(made, *first, **values)

        every = [*own, *common] if last else [*common, *own]
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in every}
        return run

    return decorate


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    hints = get_type_hints(function, include_extras=True)
    return [
        each.replace(annotation=hints[each.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for each in inspect.signature(function).parameters.values()
    ]


def output(path: Path | None, option: str) -> Callable[[bytes], None]:
    """Refuse a file that cannot be written, and answer what writes it; where none is asked for, that writes nothing."""
    if path is None:
        return lambda content: None
    if path.is_dir():
        raise UsageError(f"{option} {path}: is a folder; name a file in it")
    try:
        _try(path)
    except OSError as error:
        raise _refusal(path, option, error) from None

    def write(content: bytes) -> None:
        try:
            path.write_bytes(content)
        except OSError as error:
            raise _refusal(path, option, error) from None

    return write


def _try(path: Path) -> None:
    """Raise OSError if a file cannot be written; make its folder, and leave the file itself as it is."""
    if path.exists():
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return
    with suppress(FileExistsError):  # which may be a file; refused below
        path.parent.mkdir(parents=True)
    with tempfile.TemporaryFile(dir=path.parent):
        pass


def _refusal(path: Path, option: str, error: OSError) -> UsageError:
    return UsageError(f"{option} {path}: cannot be written ({error.strerror or error}); choose another file")


class Results:
    """Results of a command: text for people, and JSON for programs where `--json` names a file."""

    def __init__(self, file: Path | None = None) -> None:
        self._instead = file == Path("-")
        self._write = output(None if self._instead else file, "--json")

    def text(self, *lines: object) -> None:
        for line in () if self._instead else lines:
            echo(line)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print a table whose cells are read whole, folded to the width of the terminal."""
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text as Cell

        shown = Table(box=None, pad_edge=False)
        for name in columns:
            shown.add_column(name, overflow="fold")
        for row in rows:
            shown.add_row(*(Cell(printable(cell)) for cell in row))
        if not self._instead:
            Console().print(shown)

    def data(self, value: Any) -> None:
        content = canonical(value)
        self._write(content)
        if self._instead:
            echo(content.decode().rstrip())


def _results(
    as_json: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Also write the results as JSON; '-' prints JSON instead of text."),
    ] = None,
) -> Results:
    return Results(as_json)


prints_results = takes(_results, last=True)
"""Gives a command the option `--json`, and the command a first argument that takes its results."""


def specification(
    file: Annotated[Path | None, typer.Argument(help="A specification in YAML; options below override it.")] = None,
    protocol: Annotated[Text, typer.Option(help=f"{', '.join(protocols.names())}; the default is {protocols.USUAL}.")] = None,
    preset: Annotated[Text, typer.Option(help="What is not given comes to: 'counterfoil list presets' says.")] = None,
    model: Annotated[Text, typer.Option(help="The classifier under test, as in timm:resnet50, or a checkpoint.")] = None,
    arch: Annotated[Text, typer.Option(help="Architecture of a checkpoint, as in timm:resnet18, if none is found.")] = None,
    data: Annotated[Text, typer.Option(help="Labelled images: a folder with one sub-folder per class, or kind:rest.")] = None,
    generator: Annotated[Text, typer.Option(help="Part that makes the images, as in autoencoder:PATH.")] = None,
    oracle: Annotated[Text, typer.Option(help="Part that decides whether the class is still visible, as in clip:PATH.")] = None,
    captioner: Annotated[Text, typer.Option(help="For lance: part that describes the images, as in blip:PATH.")] = None,
    rewriter: Annotated[Text, typer.Option(help="For lance: part that rewrites captions, as in lexicon: or llm:PATH.")] = None,
    editor: Annotated[Text, typer.Option(help="For lance: part that edits images to match a caption, as in p2p:PATH.")] = None,
    encoder: Annotated[Text, typer.Option(help="For lance: part that compares images with words, as in clip:PATH.")] = None,
    painter: Annotated[Text, typer.Option(help="For imagenet-d: part that paints from words, as in diffusers:PATH.")] = None,
    size: Annotated[Number, typer.Option(help="For fmr: image side in pixels, if neither generator nor model fixes it.")] = None,
    limit: Annotated[Number, typer.Option(help="Images at most, taken evenly over the classes.")] = None,
    seed: Annotated[Number, typer.Option(help="Seed of the run.")] = None,
    device: Annotated[Text, typer.Option(help="cpu, cuda, cuda:1 …")] = None,
    precision: Annotated[Text, typer.Option(help="For fmr: float32 (default on a CPU) or bf16 (on a GPU that has it).")] = None,
    settings: Annotated[
        Texts,
        typer.Option(
            "--set", help="KEY=VALUE for any key that 'run --dry-run' prints, or option of a part, as in model.weights=FILE."
        ),
    ] = None,
) -> dict[str, Any]:
    """Read the values of a specification from a file and from options, which override it."""
    given = {name: value for name, value in locals().items() if name not in ("file", "arch", "precision", "settings")}
    values = specs.read(file) if file else {}
    values.update({key: value for key, value in given.items() if value is not None})
    if model is not None and Path(model).expanduser().exists():
        from counterfoil.parts.models.recognise import recognise

        part = recognise(model, arch=arch)
        values["model"] = {"name": part.name, **part.options}
    elif arch is not None:
        raise UsageError("--arch: names the architecture of a checkpoint; give its file as --model")
    for assignment in settings or []:
        protocols.override(values, assignment)
    put(values, "engine", "precision", precision)
    return values


def resolve(values: Mapping[str, Any], **execution: Any) -> tuple[Any, Execution]:
    """Return the specification that values stand for, and where it is executed."""
    where = Execution.of(values.get("execution"), **execution)
    settings = {key: value for key, value in values.items() if key != "execution"}
    return protocols.parse_here(settings), where


def put(values: dict[str, Any], section: str, key: str, value: Any) -> None:
    if value is None:
        return
    if values.get(section) is None:
        values[section] = {}
    if isinstance(values[section], dict):  # anything else is refused when the whole is read
        values[section][key] = value
