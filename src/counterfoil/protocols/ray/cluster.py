"""Workers as actors of Ray, which restarts those that are lost: one per GPU or group of cores, on one machine or many."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from counterfoil.core.errors import CounterfoilError, RunFailed, UsageError, one_line, require
from counterfoil.protocols.base import Execution
from counterfoil.protocols.ray.dispatch import Answer, Lost
from counterfoil.protocols.ray.workers import Described, NotBuilt, check_alike

UNREADY = 3  # workers per place that may be lost in a row while they build their parts
BEAT = 1.0  # seconds between two signs of life
HUNG_AFTER = 600.0  # seconds without a change in them after which a worker that has something to do counts as lost
PLACING = 30.0  # seconds after which a worker that no node has taken is reported
KNOCK = 10.0  # seconds that a cluster's address is given to answer

_MODE = "RAY_AUTH_MODE"  # what Ray reads, as it is imported, to know whether to show a token
_WITH_TOKEN = f"if its head asks for a token, have the head's in ~/.ray/auth_token or RAY_AUTH_TOKEN, and set {_MODE}=token"
_STORE = 100 * 2**20  # bytes of shared memory: calls and answers are small, images go to the disk

Node = tuple[int, int]
"""Cores and GPUs of one machine of a cluster."""


@dataclass
class _Worker:
    actor: Any
    since: float  # when it was last seen to get anywhere, or began to wait for a node
    about: Described | None = None  # once its parts are built
    life: int | None = None  # its last sign of life; None until a node has taken it


class Cluster:
    """The workers of a run, and the calls that they are at. Joins the cluster that was named, or starts one for itself."""

    def __init__(self, execution: Execution, *, device: str, tell: Callable[[str], None] = lambda line: None) -> None:
        kind, _, index = device.partition(":")
        if kind not in ("cpu", "cuda") or index:
            raise UsageError(f"--device {device} with --executor ray: workers run on cpu or cuda, each with a GPU of its own")
        self._gpu = kind == "cuda"
        _show_token(execution.address)
        self._ray: Any = require("ray", what="--executor ray")
        self._execution, self._tell = execution, tell
        self._workers: dict[str, _Worker] = {}
        self._calls: dict[Any, tuple[str, str]] = {}  # worker and method of the calls that have not ended
        self._unready = self._waiting = 0
        self._beat = 0.0  # when signs of life were last asked for
        self._first: Described | None = None
        self._remark = ""

    def __enter__(self) -> Cluster:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        self._joined = self._ray.is_initialized()
        if not self._joined:
            self._connect(log_to_driver=False, logging_level="ERROR")
        nodes, asked = living(self._ray.nodes()), self._execution.workers
        gpus, cores = sum(gpus for _, gpus in nodes), sum(cores for cores, _ in nodes)
        self._several = len(nodes) > 1
        if self._gpu and (asked or 1) > gpus and not (asked and self._execution.address):  # to a cluster, nodes may be added
            advice = "give --device cpu, or fewer" if gpus else "give --device cpu, or on a cluster --workers to wait for nodes"
            raise UsageError(f"--workers {asked or 1}: every worker has a GPU of its own, and there are {gpus}; {advice}")
        self.size = asked or (gpus if self._gpu else max(1, cores))
        self._share = cores_per_gpu(nodes) if self._gpu else share_of_cores(nodes, self.size)
        self.threads = self._execution.threads or self._share
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
        if not self._joined:
            self._ray.shutdown()

    def stop(self) -> None:
        """End all workers."""
        for worker in self._workers.values():
            with suppress(Exception):
                self._ray.kill(worker.actor)
        self._workers, self._calls = {}, {}

    def start(self, kind: type[Any], *arguments: Any, given: Any = None, **options: Any) -> Described:
        """Start all workers; returns what the first that is ready describes. Large objects are put into Ray's store once."""
        resources = {"num_gpus": 1, "num_cpus": 0} if self._gpu else {"num_cpus": min(self.threads, self._share)}
        actor = self._ray.remote(max_restarts=-1, concurrency_groups={"io": 2}, **resources)(kind)
        self._given = self._ray.put(given) if given is not None else None
        for number in range(self.size):
            made = actor.options(scheduling_strategy="SPREAD").remote(*arguments, threads=self.threads, **options)
            self._workers[f"worker {number}"] = _Worker(made, time.monotonic())
        while self._first is None:
            self.wait()
        return self._first

    def workers(self) -> Mapping[str, int]:
        """Workers that have built their parts, and how many items each works on at a time."""
        return {name: each.about.slots for name, each in self._workers.items() if each.about is not None}

    def send(self, worker: str, items: Mapping[str, Any], at_least: int) -> Any:
        """Begin a call: more items by key, and how many of all it holds the worker finishes before it answers."""
        self._workers[worker].since = time.monotonic()
        return self._begin(worker, "process", items, at_least)

    def wait(self) -> tuple[Any, Answer | Lost] | None:
        """A call with items that has ended, or None after a second at most. Raises an error of the run as the worker did."""
        self._check_life()
        ready, _ = self._ray.wait(list(self._calls), timeout=1.0)
        if not ready:
            return None
        name, method = self._calls.pop(ready[0])
        worker, failures = self._workers[name], self._ray.exceptions
        try:
            answer = self._ray.get(ready[0])
        except failures.RayTaskError as error:  # an exception in the worker, not its end
            if isinstance(error.cause, CounterfoilError):
                raise type(error.cause)(f"{error.cause}{self._on(worker)}") from None
            if not isinstance(error.cause, NotBuilt):
                raise error from None
            answer = Lost(one_line(error.cause))
        except failures.RayError as error:
            answer = Lost(one_line(error))
        if isinstance(answer, Lost) and method != "sign_of_life":
            self._mourn(worker, answer, building=method == "build")
        elif isinstance(answer, Described):
            self._welcome(worker, answer)
        elif isinstance(answer, int) and answer != worker.life:
            worker.life, worker.since = answer, time.monotonic()
        return (ready[0], answer) if method == "process" else None

    def hand_in(self) -> None:
        """Have all calls end with what is finished."""
        for name in self.workers():
            self._workers[name].actor.hand_in.options(concurrency_group="io").remote()

    def _begin(self, name: str, method: str, *arguments: Any, **options: Any) -> Any:
        call = getattr(self._workers[name].actor, method).options(**options).remote(*arguments)
        self._calls[call] = (name, method)
        return call

    def _mourn(self, worker: _Worker, lost: Lost, *, building: bool) -> None:
        """Leave a worker out until Ray has restarted it and its parts are built again."""
        self._unready += building
        if self._unready > UNREADY * self.size:
            advice = "every node needs the same packages and files"
            raise RunFailed(f"{self._unready} workers in a row were lost while they built their parts: {lost.cause}; {advice}")
        self._tell(f"worker lost, restarting{self._on(worker)}: {lost.cause}")
        worker.about, worker.life, worker.since = None, None, time.monotonic()

    def _welcome(self, worker: _Worker, about: Described) -> None:
        self._unready, self._first, worker.about = 0, self._first or about, about
        if (remark := check_alike(self._first, about)) and not self._remark:
            self._remark = remark
            self._tell(remark)

    def _check_life(self) -> None:
        """Ask for signs of life; have workers that give one build their parts; end those that hang, of which Ray sees nothing."""
        now, calls = time.monotonic(), set(self._calls.values())
        if now - self._beat < BEAT and calls:
            return
        self._beat = now
        for name, worker in self._workers.items():
            if (name, "sign_of_life") not in calls:
                self._begin(name, "sign_of_life", concurrency_group="io")
            if worker.life is not None and worker.about is None and (name, "build") not in calls:
                self._begin(name, "build", self._first is None, self._given)
            if (name, "process") in calls and now - worker.since > HUNG_AFTER:
                worker.since = now
                self._tell(f"worker hangs, restarting{self._on(worker)}: no sign of life for {HUNG_AFTER:.0f} seconds")
                self._ray.kill(worker.actor, no_restart=False)
        waiting = sum(worker.life is None and now - worker.since > PLACING for worker in self._workers.values())
        if waiting > self._waiting:
            what = "a GPU" if self._gpu else f"{self._share} free cores"
            self._tell(f"{waiting} of {self.size} workers wait for a node with {what}; the others work without them")
        self._waiting = waiting

    def _on(self, worker: _Worker) -> str:
        return f" (on node {worker.about.node})" if self._several and worker.about is not None else ""

    def _connect(self, **options: Any) -> None:
        address, answered, refused = self._execution.address, False, self._ray.exceptions.RayError
        try:
            if address:
                answered = knock(address)
                self._ray.init(address=address, **options)
            else:  # without an address Ray would join a cluster that is there, and refuse to be told how many cores it has
                cores = max(self._execution.workers or 0, os.cpu_count() or 1)
                options |= {"num_cpus": cores, "include_dashboard": False, "object_store_memory": _STORE}
                self._ray.init(address="local", **options)
        except (OSError, ValueError, RuntimeError, refused) as error:
            advice = _WITH_TOKEN if answered or isinstance(error, refused) else "start it with 'ray start --head'"
            raise UsageError(f"Ray cannot be reached at {address or 'this machine'}: {one_line(error)}; {advice}") from None


def living(described: Sequence[Mapping[str, Any]]) -> list[Node]:
    """The nodes that are there, out of what `ray.nodes` returns."""
    held = [each.get("Resources", {}) for each in described if each.get("Alive")]
    return [(int(each.get("CPU", 0)), int(each.get("GPU", 0))) for each in held]


def share_of_cores(nodes: Sequence[Node], workers: int) -> int:
    """Cores for each of `workers`: as many as can be while all of them find a node, none being shared by two."""
    shares = range(sum(cores for cores, _ in nodes) // workers, 1, -1)
    return next((share for share in shares if sum(cores // share for cores, _ in nodes) >= workers), 1)


def cores_per_gpu(nodes: Sequence[Node]) -> int:
    """Cores for each GPU, on the node where they are fewest."""
    return max(1, min((cores // gpus for cores, gpus in nodes if gpus), default=1))


def knock(address: str) -> bool:
    """See that a head listens at HOST:PORT, because Ray itself would try for ever. Other addresses are left to Ray."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        return False
    socket.create_connection((host, int(port)), timeout=KNOCK).close()
    return True


def _show_token(address: str | None) -> None:
    """Have Ray show this machine's token, if there is one, to a head at HOST:PORT.

    Starting a head turns tokens on where there is one, and starting a cluster for one process makes one. But Ray shows it by
    itself to `auto` alone, and is refused elsewhere. A head that asks for none does not mind.
    """
    given = "RAY_AUTH_TOKEN" in os.environ or "RAY_AUTH_TOKEN_PATH" in os.environ
    if address not in (None, "auto") and (given or (Path.home() / ".ray" / "auth_token").is_file()):
        os.environ.setdefault(_MODE, "token")
