"""Workers as actors of Ray: one a GPU, or a group of cores, on this machine or on all of a cluster."""

from __future__ import annotations

import os
import platform
import re
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from counterfoil.core.errors import CounterfoilError, RunFailed, UsageError
from counterfoil.core.extras import require
from counterfoil.protocols.ray.crew import Death, Event, Order, Ready, Report
from counterfoil.protocols.ray.execution import Execution
from counterfoil.protocols.ray.nodes import cores_beside_a_gpu, living, share_of_cores
from counterfoil.store.chunks import Chunk

WAIT = 1.0  # seconds after which `wait` answers with nothing
SILENCE = 600.0  # seconds after which a worker that owes the answer of a turn, which takes a fraction of one, counts as dead
PLACING = 30.0  # seconds after which a worker that no node has taken is spoken of
KNOCK = 10.0  # seconds that a cluster's address is given to answer
LINE = 200  # characters of Ray's own words that a message repeats
_MODE = "RAY_AUTH_MODE"  # what Ray reads, as it is imported, to know whether to show a token
_WITH_TOKEN = f"if its head asks for a token, have the head's in ~/.ray/auth_token or RAY_AUTH_TOKEN, and set {_MODE}=token"
_BROKEN = re.compile(r"CUDA|CUBLAS|CUDNN|HIP error|out of memory", re.IGNORECASE)  # what a GPU's failures have in them
_STORE = 100 * 2**20  # bytes of shared memory: orders and reports are small, pictures go to the disk


class RayPool:
    """Starts actors and carries orders and reports between them and the driver."""

    def __init__(self, execution: Execution, *, device: str, tell: Callable[[str], None] = lambda line: None) -> None:
        self._gpu = _on_gpu(device)
        _show_token(execution.address)
        self._ray: Any = require("ray", what="--executor ray")
        self._execution, self._tell = execution, tell
        self._actors: dict[str, Any] = {}
        self._calls: dict[Any, tuple[str, float]] = {}  # the call that each worker is at, and since when
        self._placing: dict[str, bool] = {}  # those that no node has taken yet, and whether they are to try their parts
        self._building: set[str] = set()
        self._nodes: dict[str, str] = {}  # where each worker is
        self._started = 0
        self._spoken = 0  # how many workers without a node were spoken of

    def __enter__(self) -> RayPool:
        """Join the cluster that was named, or start one that ends with this process, whatever else runs on the machine."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        self._joined = self._ray.is_initialized()
        if not self._joined:
            self._connect(log_to_driver=False, logging_level="ERROR")
        nodes = living(self._ray.nodes())
        gpus, cores = sum(node.gpus for node in nodes), sum(node.cores for node in nodes)
        self._several = len(nodes) > 1
        if self._gpu:
            self._check_gpus(gpus)
        self.workers = self._execution.workers or (gpus if self._gpu else max(1, cores))
        self._share = cores_beside_a_gpu(nodes) if self._gpu else share_of_cores(nodes, self.workers)
        self.threads = self._execution.threads or self._share
        return self

    def _check_gpus(self, there: int) -> None:
        """Refuse workers that would wait for a GPU for ever. On a cluster that is joined, nodes may be added later."""
        asked = self._execution.workers
        if not there and not (asked and self._execution.address):
            advice = "give --device cpu, or add a node, or --workers to wait for nodes that are still to come"
            raise UsageError(f"--device cuda with --executor ray: the cluster has no GPU; {advice}")
        if asked and asked > there and not self._execution.address:
            raise UsageError(f"--workers {asked}: every worker has a GPU of its own, and there are {there}; leave --workers out")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
        if not self._joined:
            self._ray.shutdown()

    def _connect(self, **options: Any) -> None:
        address, answered, no_entry = self._execution.address, False, self._ray.exceptions.RayError
        try:
            if address:
                answered = _knock(address)
                self._ray.init(address=address, **options)
            else:  # without an address Ray would join a cluster that is there, and refuse to be told how many cores it has
                cores = max(self._execution.workers or 0, os.cpu_count() or 1)
                options |= {"num_cpus": cores, "include_dashboard": False, "object_store_memory": _STORE}
                self._ray.init(address="local", **options)
        except (OSError, ValueError, RuntimeError, no_entry) as error:
            advice = _WITH_TOKEN if answered or isinstance(error, no_entry) else "start it with 'ray start --head'"
            raise UsageError(f"Ray cannot be reached at {address or 'this machine'}: {_line(error)}; {advice}") from None

    def employ(self, kind: type[Any], *arguments: Any, **options: Any) -> None:
        """Say what workers are and what they are made with. Large objects are put into Ray's store once."""
        resources = {"num_gpus": 1, "num_cpus": 0} if self._gpu else {"num_cpus": min(self.threads, self._share)}
        actor = self._ray.remote(kind).options(max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD", **resources)
        shared = {
            name: self._ray.put(value) if name == "given" and value is not None else value for name, value in options.items()
        }
        self._employed = (actor, arguments, shared)

    def start(self, *, replacing: bool = False) -> str:
        """Start a worker."""
        kind, arguments, options = self._employed
        name = f"worker {self._started}"
        self._started += 1
        self._actors[name] = actor = kind.remote(*arguments, **options)
        self._calls[actor.__ray_call__.remote(_node)] = (name, time.monotonic())
        self._placing[name] = not replacing
        return name

    def turn(self, worker: str, order: Order[Any]) -> None:
        """Give a worker its next order."""
        self._calls[self._actors[worker].turn.remote(order)] = (worker, time.monotonic())

    def wait(self) -> list[tuple[str, Event]]:
        """What has come in by now."""
        if not self._calls:
            raise RunFailed("no worker is left; the same command goes on from what is done")
        done, _ = self._ray.wait(list(self._calls), num_returns=1, timeout=WAIT, fetch_local=True)
        more, _ = self._ray.wait(list(self._calls), num_returns=len(self._calls), timeout=0, fetch_local=True)
        found: list[tuple[str, Event]] = []
        for call in dict.fromkeys([*done, *more]):
            worker, _ = self._calls.pop(call)
            event = self._event(worker, call)
            found += [(worker, event)] if event is not None else []
        self._speak()
        return found + self._silent()

    def ask(self, method: str) -> None:
        """Have one of the workers that are ready do something, and wait for it; without any, it is left undone."""
        for name, actor in self._actors.items():
            if name in self._placing or name in self._building:
                continue
            with suppress(self._ray.exceptions.RayActorError):
                self._ray.get(getattr(actor, method).remote())
                return

    def stop(self) -> None:
        """End all workers."""
        for actor in self._actors.values():
            with suppress(Exception):
                self._ray.kill(actor)
        self._actors, self._calls = {}, {}

    def _silent(self) -> list[tuple[str, Event]]:
        """The deaths of workers that hang: they keep what they have finished from the disk, and would be waited for for ever."""
        now = time.monotonic()
        silent = {
            call: worker
            for call, (worker, since) in self._calls.items()
            if worker not in self._placing and worker not in self._building and now - since > SILENCE
        }
        for call, worker in silent.items():
            del self._calls[call]
            self._kill(worker)
        return [(worker, Death(f"it has not answered for {SILENCE:.0f} seconds")) for worker in silent.values()]

    def _kill(self, worker: str) -> None:
        with suppress(Exception):
            self._ray.kill(self._actors.pop(worker))

    def _speak(self) -> None:
        """Tell of workers that wait for a node, once it has been long; more may come, so that it is no failure."""
        now, since = time.monotonic(), dict(self._calls.values())
        late = sum(now - since[worker] > PLACING for worker in self._placing if worker in since)
        if late > self._spoken:
            what = "a GPU" if self._gpu else f"{self._share} free cores"
            self._tell(f"{late} of {len(self._actors)} workers wait for a node with {what}; the others work without them")
        self._spoken = late

    def _event(self, worker: str, call: Any) -> Event | None:
        failures = self._ray.exceptions
        try:
            answer = self._ray.get(call)
        except failures.RayTaskError as error:  # an exception in the worker, not its end
            cause: Exception | None = getattr(error, "cause", None)
            if self._placing.pop(worker, None) is not None:
                unfit = f"a node cannot run workers: {_line(cause or error)}; install the same there as here"
                return Report(error=self._placed(UsageError(unfit), getattr(error, "ip", "")))
            known = isinstance(cause, CounterfoilError) or _broken(cause)
            return self._failed(worker, cause if known and cause is not None else error)
        except failures.RayError as error:
            return self._dead(worker, error)
        if worker in self._placing:
            self._nodes[worker] = answer
            begin = self._actors[worker].begin.remote(check=self._placing.pop(worker))
            self._calls[begin] = (worker, time.monotonic())
            self._building.add(worker)
            return None
        if worker in self._building:
            self._building.discard(worker)
            return Ready(answer, self._nodes[worker])
        assert isinstance(answer, Report)
        return answer if answer.error is None else self._failed(worker, answer.error, answer.staged)

    def _failed(self, worker: str, error: Exception, staged: Chunk | None = None) -> Event:
        """An error of the run; but a GPU that fails ends its worker alone, and what it had is tried elsewhere, in halves."""
        if _broken(error):
            return self._dead(worker, error)
        return Report(staged=staged, error=self._placed(error, self._nodes.get(worker, "")))

    def _dead(self, worker: str, error: Exception) -> Death:
        self._kill(worker)  # one that cannot be reached may still be at work
        self._placing.pop(worker, None)
        self._building.discard(worker)
        where = self._nodes.pop(worker, "")
        return Death(_line(error) + (f" (on node {where})" if self._several and where else ""))

    def _placed(self, error: Exception, where: str) -> Exception:
        """The error, with the node it is of, where there are several."""
        if self._several and where and isinstance(error, CounterfoilError):
            return type(error)(f"{error} (on node {where})")
        return error


def _broken(error: BaseException | None) -> bool:
    """Whether an error says that the GPU, not the work, has failed."""
    return isinstance(error, RuntimeError) and _BROKEN.search(str(error)) is not None


def _node(worker: Any) -> str:
    """The name of the machine that a worker is on."""
    return platform.node()


def _show_token(address: str | None) -> None:
    """Have Ray show this machine's token, if there is one, to a head at HOST:PORT.

    Starting a head turns tokens on where there is one, and starting a cluster for one process makes one. But Ray shows it by
    itself to `auto` alone, and is refused elsewhere. A head that asks for none does not mind.
    """
    given = "RAY_AUTH_TOKEN" in os.environ or "RAY_AUTH_TOKEN_PATH" in os.environ
    if address not in (None, "auto") and (given or (Path.home() / ".ray" / "auth_token").is_file()):
        os.environ.setdefault(_MODE, "token")


def _knock(address: str) -> bool:
    """See that somebody listens at HOST:PORT, because Ray itself would try for ever. Other addresses are left to Ray."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        return False
    socket.create_connection((host, int(port)), timeout=KNOCK).close()
    return True


def _on_gpu(device: str) -> bool:
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda"):
        raise UsageError(f"--device {device} with --executor ray: workers run on cpu or cuda")
    if index:
        raise UsageError(f"--device {device} with --executor ray: each worker gets a GPU of its own; give --device {kind}")
    return kind == "cuda"


def _line(error: BaseException) -> str:
    """The first lines of an error as one."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= LINE else f"{text[:LINE]} …"
