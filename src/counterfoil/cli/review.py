"""`counterfoil review`: have people judge a run's pictures, and make verdicts of their votes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from counterfoil.cli.output import echo
from counterfoil.cli.serve import Address, Host, Log, Port, TokenFile
from counterfoil.core.extras import require

if TYPE_CHECKING:
    from counterfoil.web.review.planning import Plan
    from counterfoil.web.settings import Settings


def review(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    reviewer: Annotated[list[str] | None, typer.Option(help="Somebody to invite, by name; may be repeated.")] = None,
    votes: Annotated[int, typer.Option(help="Votes a picture.")] = 3,
    sentinels: Annotated[float, typer.Option(help="Share of pictures whose answer is known.")] = 0.1,
    bar: Annotated[float, typer.Option(help="Share of known answers a reviewer must get right to count.")] = 0.7,
    known: Annotated[Path | None, typer.Option(help="CSV of known answers; by default clean pictures of the run.")] = None,
    limit: Annotated[int | None, typer.Option(help="Pictures at most, drawn at random.")] = None,
    control: Annotated[bool, typer.Option("--control", help="Also the pictures of the random control.")] = False,
    new: Annotated[bool, typer.Option("--new", help="Begin another review though there is one.")] = False,
    verdicts: Annotated[bool, typer.Option("--verdicts", help="Write what the votes came to into the run, and end.")] = False,
    export: Annotated[Path | None, typer.Option(help="Write the review as Label Studio tasks, and end.")] = None,
    embed: Annotated[bool, typer.Option("--embed", help="With --export: put the pictures into the tasks.")] = False,
    take: Annotated[Path | None, typer.Option("--import", help="Enter votes from a Label Studio export, and end.")] = None,
    host: Host = "127.0.0.1",
    port: Port = 8765,
    database: Address = "",
    token_file: TokenFile = None,
    log: Log = False,
) -> None:
    """Have people judge a run's images.

    Is the class there, is it one class, is the image usable.

    \b
    counterfoil review runs/fmr-resnet50 --reviewer Ann --reviewer Ben --votes 2
    counterfoil review runs/fmr-resnet50 --verdicts
    """
    require("fastapi", extra="web", what="counterfoil review")
    from counterfoil.store import open_run
    from counterfoil.web import serving
    from counterfoil.web.review.planning import Plan

    open_run(run)  # says what is wrong with it before anything is written
    settings = serving.settings_for(run, host=host, port=port, database=database, token_file=token_file)
    plan = Plan(votes, sentinels, bar, control, limit, known)
    desk = _Desk(settings, plan, new=new)
    if take is not None:
        desk.take(take)
    if export is not None:
        desk.export(export, pictures="embed" if embed else "files")
    if verdicts:
        desk.verdicts()
    if take is not None or export is not None or verdicts:
        return
    tokens = {name: desk.invite(name) for name in reviewer or ()}

    def told(started: Settings) -> None:
        echo(serving.welcome(started))
        echo(f"Review {desk.key}: {started.address}/reviews/{desk.key}")
        for name, token in tokens.items():
            echo(f"{name}: {started.address}/enter#{token}")

    serving.serve(settings, told=told, log=log)


class _Desk:
    """The review of one run in its database: the newest one, or a new one."""

    def __init__(self, settings: Settings, plan: Plan, *, new: bool) -> None:
        from sqlalchemy import select

        from counterfoil.store import open_run
        from counterfoil.web.database import Database, Review
        from counterfoil.web.database.migrate import bring_up_to_date
        from counterfoil.web.review.planning import create_review

        self._settings, self._name = settings, settings.only[0]
        self._run = open_run(settings.root / self._name)
        self._database = Database(settings.database_url)
        bring_up_to_date(self._database)
        with self._database.writing() as transaction:
            newest = select(Review).where(Review.run == self._name).order_by(Review.id.desc()).limit(1)
            found = None if new else transaction.scalar(newest)
            self._review = found or create_review(transaction, self._run, name=self._name, plan=plan)
        self.key = self._review.key

    def invite(self, name: str) -> str:
        """A token for a reviewer; who was invited before keeps their votes and gets a new one."""
        from counterfoil.web.review.people import invite_again

        with self._database.writing() as transaction:
            return invite_again(transaction, self._review, name)

    def verdicts(self) -> None:
        """Write the verdicts and print the numbers that follow from them."""
        from counterfoil.cli.results import show
        from counterfoil.store.later import review_lines, review_of
        from counterfoil.web.review.publishing import publish

        written = publish(self._database, self._run, self._review)
        kept = f"{written.kept} pictures kept, {written.rejected} rejected, {written.undecided} undecided"
        echo(f"{kept}; verdicts of oracle {written.oracle}")
        if written.note:
            echo(written.note)
        if written.kept or written.rejected:
            for line in review_lines(review_of(self._run.path) or {})[1:]:
                echo(line)
            show(self._run, oracle=written.oracle)

    def export(self, path: Path, *, pictures: Literal["files", "embed"]) -> None:
        """Write tasks, and beside them the interface to judge them with."""
        from counterfoil.web.review.label_studio import CONFIG, write_tasks

        with self._database.reading() as transaction:
            count = write_tasks(transaction, self._review, run=self._run.path, path=path, pictures=pictures)
        interface = path.with_suffix(".xml")
        interface.write_text(CONFIG, encoding="utf-8")
        echo(f"{count} tasks in {path}, labelling interface in {interface}")

    def take(self, path: Path) -> None:
        """Enter votes, and say what could not be used."""
        from counterfoil.web.review.label_studio import import_votes

        with self._database.writing() as transaction:
            done = import_votes(transaction, self._review, path)
        echo(f"{done.votes} votes by {len(done.reviewers)} reviewers entered")
        for reason, times in done.problems.most_common():
            echo(f"left out, {times}: {reason}")
