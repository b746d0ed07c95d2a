"""What a server is told at its start."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from counterfoil.core.errors import UsageError

STATE = ".counterfoil"
"""Folder beside the runs for the database, rendered reports and the owner's token."""

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class Settings:
    """Where the runs are, who may come in, and where votes are kept."""

    root: Path
    only: tuple[str, ...] = ()  # names of the runs to show; empty for all
    database: str = ""  # URL; empty for SQLite in the state folder
    token: str = field(default="", repr=False)  # the owner's; empty lets everybody on this machine be the owner
    host: str = "127.0.0.1"
    port: int = 8765
    body_limit: int = 64 * 1024  # bytes of a request
    session_days: int = 30
    token_given: bool = False  # in a file or by the environment; any other is made, and kept in the state folder

    def __post_init__(self) -> None:
        if not self.root.is_dir():
            what = "not a folder" if self.root.exists() else "no such folder"
            raise UsageError(f"{self.root}: {what}; give the folder that holds the runs")
        if not self.token and not is_loopback(self.host):
            raise UsageError(
                f"host {self.host}: others can reach it, so a token is needed; set COUNTERFOIL_TOKEN or --token-file"
            )
        if self.token and len(self.token) < 20:
            raise UsageError("the token is too short to keep anybody out; use 20 characters or more, or leave it to 'serve'")

    @property
    def state(self) -> Path:
        """The folder for what the server itself keeps."""
        return self.root / STATE

    @property
    def database_url(self) -> str:
        """Where votes are kept."""
        return self.database or f"sqlite:///{(self.state / 'web.sqlite').absolute()}"

    @property
    def open(self) -> bool:
        """Whether everybody who reaches the server is its owner: on loopback, without a token."""
        return not self.token

    @property
    def address(self) -> str:
        """The server's address as a link."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{'localhost' if self.host in ('0.0.0.0', '::') else host}:{self.port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound to `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
