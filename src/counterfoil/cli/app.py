"""The commands by name. A command's module is imported when the command is called, so that the list of all needs none."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from counterfoil.cli import echo
from counterfoil.core.errors import RunFailed


class Entry(NamedTuple):
    """One command: its heading in the help, the function behind it, and the first sentence of its docstring."""

    heading: str
    place: str  # module:attribute, in this package
    summary: str


COMMANDS = {
    "check": Entry("Test", "run:check", "Test your own model on your own photos; everything else is chosen."),
    "run": Entry("Test", "run:run", "Test a model with generated images."),
    "doctor": Entry("Test", "doctor:doctor", "Check a set-up for common mistakes before a run."),
    "demo": Entry("Test", "run:demo", "Test small classifiers on the lab: no network, no GPU."),
    "list": Entry("Test", "results:list_parts", "List the parts and protocols that can be named."),
    "report": Entry("Read and decide", "results:report", "Write a page of one run, or of several side by side."),
    "compare": Entry("Read and decide", "compare:compare", "Compare models with paired tests."),
    "gate": Entry("Read and decide", "compare:gate", "Pass or fail a run, for a pipeline."),
    "score": Entry("Read and decide", "results:score", "Ask another model about a run's images."),
    "judge": Entry("Read and decide", "results:judge", "Ask another oracle about a run's images."),
    "export": Entry("Share", "results:export", "Export a run's accepted images as a dataset."),
    "board": Entry("Share", "results:board", "Build a leaderboard from runs and results."),
    "review": Entry("Share", "serving:review", "Have people judge a run's images."),
    "serve": Entry("Share", "serving:serve", "Serve a folder of runs to browsers."),
    "study": Entry("The instrument", "study:study", "Run experiments on the instrument itself."),
    "train-rewriter": Entry("The instrument", "training:train_rewriter", "Fine-tune a LoRA adapter for a rewriter."),
}
_PLAIN: Any = {"add_completion": False, "pretty_exceptions_enable": False, "rich_markup_mode": None}


class LazyGroup(TyperGroup):
    """Commands that are imported when they are called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, entry in COMMANDS.items():
            self.add_command(TyperCommand(name, callback=None, short_help=entry.summary, help=entry.summary))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return load(cmd_name) if cmd_name in COMMANDS else None

    def invoke(self, ctx: Any) -> Any:
        """Run the command; what a user's model or plug-in does to end the process is a failure, not an end."""
        try:
            return super().invoke(ctx)
        except SystemExit as ended:
            raise RunFailed(f"a part ended the process (sys.exit({ended.code!r})); what is finished is kept") from ended

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands under their headings, without importing one."""
        for heading in dict.fromkeys(entry.heading for entry in COMMANDS.values()):
            with formatter.section(heading):
                formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items() if entry.heading == heading])


def load(name: str) -> Any:
    module, _, attribute = COMMANDS[name].place.partition(":")
    alone = typer.Typer(**_PLAIN)
    alone.command(name)(getattr(import_module(f"counterfoil.cli.{module}"), attribute))
    command = typer.main.get_command(alone)
    command.name = name
    return command


app = typer.Typer(
    name="counterfoil",
    cls=LazyGroup,
    help="Stress-test image classifiers with generated images. 'counterfoil demo' needs nothing else; --debug, "
    "anywhere, shows the traceback of an error.",
    no_args_is_help=True,
    **_PLAIN,
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        echo(version("counterfoil"))
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool | None, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = None,
) -> None:
    """Options that come before any command."""
