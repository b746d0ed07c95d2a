"""`counterfoil serve` and `review`: runs, reports and the board in a browser; people's judgement of a run's images."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterfoil.cli import echo
from counterfoil.cli.options import OneRun, Results, prints_results, takes
from counterfoil.core.errors import require

if TYPE_CHECKING:
    from counterfoil.web.access import ServerSettings
    from counterfoil.web.review import ReviewSession

VOTES = 3


def server(
    host: Annotated[str, typer.Option(help="Address to listen on. Any but a loopback one demands a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any that is free.")] = 8765,
    database: Annotated[str, typer.Option("--database", help="Where votes are kept: postgresql://… or sqlite:///FILE.")] = "",
    token_file: Annotated[Path | None, typer.Option(help="File with the owner's token; COUNTERFOIL_TOKEN does as well.")] = None,
    https: Annotated[bool, typer.Option("--https", help="Behind a proxy that adds TLS: cookies go over https only.")] = False,
    log: Annotated[bool, typer.Option("--log", help="Write a line about every request to standard error.")] = False,
) -> dict[str, Any]:
    return locals()


@takes(server, last=True)
def serve(
    server: dict[str, Any],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of runs, or a run directory.")] = Path("runs"),
) -> None:
    """Serve a folder of runs to browsers.

    Browse, compare, report, board, review, and watch runs in progress.

    \b
    counterfoil serve runs
    """
    require("fastapi", what="counterfoil serve")
    from counterfoil.web import app
    from counterfoil.web.access import ServerSettings

    log = server.pop("log")
    app.serve(ServerSettings.of(folder, **server), told=lambda started: echo(started.welcome()), log=log)


@takes(server, last=True)
@prints_results
def review(
    results: Results,
    server: dict[str, Any],
    run: OneRun,
    reviewer: Annotated[list[str] | None, typer.Option(help="A reviewer to invite, by name; may be repeated.")] = None,
    votes: Annotated[
        int | None,
        typer.Option(help=f"Votes per image; by default {VOTES}, or as many as reviewers are named.", show_default=False),
    ] = None,
    known_answers: Annotated[float, typer.Option(help="Share of images whose answer is known.")] = 0.1,
    min_known_correct: Annotated[float, typer.Option(help="Share of known answers a reviewer must get right to count.")] = 0.7,
    known: Annotated[Path | None, typer.Option(help="CSV of known answers; by default clean images of the run.")] = None,
    limit: Annotated[int | None, typer.Option(help="Images at most, drawn at random.")] = None,
    control: Annotated[bool, typer.Option("--control", help="Also the images of the random control.")] = False,
    new: Annotated[bool, typer.Option("--new", help="Begin another review though there is one.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Print how far the review is and people agree, and end.")] = False,
    verdicts: Annotated[bool, typer.Option("--verdicts", help="Write what the votes came to into the run, and end.")] = False,
    export: Annotated[Path | None, typer.Option(help="Write the review as Label Studio tasks, and end.")] = None,
    embed: Annotated[bool, typer.Option("--embed", help="With --export: put the images into the tasks.")] = False,
    take: Annotated[Path | None, typer.Option("--import", help="Enter votes from a Label Studio export, and end.")] = None,
) -> None:
    """Have people judge a run's images.

    Is the class there, is it one class, is the image usable.

    \b
    counterfoil review runs/fmr-resnet50 --reviewer Ann --reviewer Ben --votes 2
    counterfoil review runs/fmr-resnet50 --status
    counterfoil review runs/fmr-resnet50 --verdicts
    """
    require("fastapi", what="counterfoil review")
    from counterfoil.store import open_run
    from counterfoil.web import app, label_studio
    from counterfoil.web.access import ServerSettings, invite
    from counterfoil.web.review import ReviewPlan, ReviewSession

    open_run(run)  # says what is wrong with it before anything is written
    log = server.pop("log")
    settings = ServerSettings.of(run, **server)
    wanted = votes if votes is not None else min(VOTES, len(reviewer or ()) or VOTES)
    plan = ReviewPlan(wanted, known_answers, min_known_correct, control, limit, known)
    session = ReviewSession.of(settings, plan, new=new)
    told: dict[str, Any] = {}
    if take is not None:
        told["votes"] = _take_in(session, take, results)
    if export is not None:
        with session.database.reading() as db:
            count = label_studio.export_tasks(db, session.review, export, run=session.run.path, embed=embed)
        results.text(f"{count} tasks in {export}, labelling interface in {export.with_suffix('.xml')}")
        told["tasks"] = {"file": str(export), "count": count}
    if verdicts:
        told["verdicts"] = _publish(session, results)
    if status:
        told["review"] = _status(session, results)
    if told:
        return results.data(told)
    with session.database.writing() as db:
        tokens = {name: invite(db, session.review, name)[1] for name in reviewer or ()}

    def tell(address: ServerSettings) -> None:
        results.text(address.welcome(), *_notes(session, votes))
        results.text(f"Review {session.review.key}: {address.address}/reviews/{session.review.key}")
        results.text(*(f"{name}: {address.address}/enter#{token}" for name, token in tokens.items()))

    app.serve(settings, told=tell, log=log)


def _notes(session: ReviewSession, votes: int | None) -> list[str]:
    from counterfoil.web.tally import summarise

    with session.database.reading() as db:
        found = summarise(db, session.review)
    lines = []
    if not session.is_new and votes not in (None, found.votes_wanted):
        lines.append(f"Note: this review exists and wants {found.votes_wanted} votes per image; --new begins another")
    if found.reviewers_missing:
        lines.append(
            f"Note: an image needs {found.votes_wanted} votes to be decided; invite {found.reviewers_missing} more "
            "(--reviewer NAME), review some yourself, or begin with fewer (--new --votes N)"
        )
    return lines


def _status(session: ReviewSession, results: Results) -> dict[str, Any]:
    from counterfoil.metrics.tables import estimate_text, tau_text
    from counterfoil.web.tally import agreements, summarise

    with session.database.reading() as db:
        found, agreed = summarise(db, session.review), agreements(db, session.review)
    results.text(f"{found.done} of {found.images} images judged: {found.kept} kept, {found.rejected} rejected, {found.tied} tied")
    for name, each in agreed.questions.items():
        results.text(f"{name}: alpha {tau_text(each.alpha)}, agreement {estimate_text(each.raw, unit=' %')}")
    return {**asdict(found), "agreement": agreed.to_dict()}


def _publish(session: ReviewSession, results: Results) -> dict[str, Any]:
    """Write the verdicts and print the numbers that follow from them."""
    from counterfoil.cli.results import show
    from counterfoil.store.later import review_lines, review_of
    from counterfoil.web.tally import publish

    written = publish(session.database, session.run, session.review)
    results.text(written)
    if not (written.kept or written.rejected):
        return asdict(written)
    results.text(*review_lines(review_of(session.run.path) or {})[1:])
    return {**asdict(written), **show(session.run, results, oracle=written.oracle)}


def _take_in(session: ReviewSession, path: Path, results: Results) -> dict[str, Any]:
    """Enter votes, and say what could not be used."""
    from counterfoil.web.label_studio import import_votes

    with session.database.writing() as db:
        done = import_votes(db, session.review, path)
    results.text(f"{done.votes} votes by {len(done.reviewers)} reviewers entered")
    results.text(*(f"left out, {times}: {reason}" for reason, times in done.problems.most_common()))
    return {"votes": done.votes, "reviewers": sorted(done.reviewers), "left out": dict(done.problems)}
