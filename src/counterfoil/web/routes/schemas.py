"""What the JSON of the interface looks like."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from counterfoil.core.records import Estimate


def _plain(text: str) -> str:
    """Text that any database can keep."""
    return text.replace("\0", "")


Text = Annotated[str, AfterValidator(_plain)]


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Number(BaseModel):
    """An estimate with its 95 % interval."""

    value: float | None
    low: float | None
    high: float | None
    n: int
    note: str = ""

    @classmethod
    def of(cls, estimate: Estimate | None) -> Number | None:
        return None if estimate is None else cls(**{name: getattr(estimate, name) for name in cls.model_fields})


class RunOut(BaseModel):
    """A run of the folder."""

    name: str
    problem: str = Field("", description="why it cannot be read; empty if it can")
    protocol: str = ""
    model: str = Field("", description="the model it tests, or the models of a painted set")
    data: str = ""
    generator: str = ""
    painter: str = ""
    surrogates: str = ""
    oracle: str = ""
    state: str = ""
    images: int = 0
    numbers: dict[str, Number] = Field(default_factory=dict)


class ProgressOut(BaseModel):
    """How far a run is."""

    state: Literal["finished", "under way", "stopped", "being added to"]
    images: int
    validated: int
    skipped: int
    expected: int | None
    share: float | None
    per_second: float | None
    seconds_left: float | None
    stages: dict[str, int] = Field(description="results of each stage so far, of protocols that go by stages")


class SessionOut(BaseModel):
    """Who the server takes somebody for, and what their changes must carry."""

    owner: bool
    name: str
    form_token: str


class ReviewIn(_Closed):
    """A review to be made."""

    run: Text = Field(max_length=1000)
    votes: int = Field(3, ge=1, le=99)
    sentinels: float = Field(0.1, ge=0, le=0.5)
    bar: float = Field(0.7, ge=0, le=1)
    control: bool = False
    limit: int | None = Field(None, ge=1, le=10_000_000)


class ReviewOut(BaseModel):
    """A review and how far it is."""

    key: str
    run: str
    votes_wanted: int
    pictures: int
    done: int
    kept: int
    rejected: int
    tied: int
    published: bool


class ReviewerIn(_Closed):
    """Somebody to invite."""

    name: Text = Field(min_length=1, max_length=80)


class InvitationOut(BaseModel):
    """A reviewer and their link. The token is shown this once; only its hash is kept."""

    key: str
    name: str
    link: str
    token: str


class VoteIn(_Closed):
    """What somebody says of a picture."""

    item: int = Field(ge=1, lt=2**31)
    present: bool | None = Field(description="is the class there; null: can't tell")
    single: bool | None = Field(None, description="is it one class")
    usable: bool | None = Field(None, description="is the picture usable")
    comment: Text = Field("", max_length=2000)


class ItemIn(_Closed):
    """A picture of the review."""

    item: int = Field(ge=1, lt=2**31)


class SettledIn(ItemIn):
    """What the owner decides where votes are tied."""

    keep: bool


class ItemOut(BaseModel):
    """A picture to judge."""

    id: int
    class_name: str
    picture: str = Field(description="its address")


class Turn(BaseModel):
    """The picture to judge now, and how far the reviewer and the review are."""

    item: ItemOut | None = Field(description="null when nothing is left for this reviewer")
    said: VoteIn | None = Field(None, description="after taking back: what had been said")
    mine: int
    done: int
    pictures: int


class AgreementOut(BaseModel):
    """How far the reviewers agree."""

    questions: dict[str, dict[str, Number | None]]
    classes: list[dict[str, Any]]
    reviewers: list[dict[str, Any]]


class PublishedOut(BaseModel):
    """What was written into the run."""

    oracle: str
    kept: int
    rejected: int
    undecided: int
    changed: int


class ErrorOut(BaseModel):
    """Why a request was not answered, in one line."""

    error: str


ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": ErrorOut} for status in (400, 401, 403, 404, 409, 413, 422, 503)}
