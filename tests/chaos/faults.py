"""Faults to a training: each is caused, and waited for until the next step is made."""

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

from chaos.processes import Server
from chaos.training import TIMEOUT_SECONDS, Fault, Outcome, Scene
from chaos.trajectory import Attempt
from pipelines.train.checkpoint.run_directory import PROGRESS


def _names(scene: Scene) -> set[str]:
    return {attempt.name for attempt in scene.attempts()}


def _since(attempt: Attempt, moment: float, note: str = "") -> Outcome:
    return Outcome("", True, attempt.first - moment, max(0.0, attempt.born - moment), max(0.0, attempt.ready - attempt.born), note)


def worker_killed(scene: Scene, server: Server, chance: random.Random) -> Outcome:
    victim, seen = scene.worker(chance), _names(scene)
    moment = time.time()
    victim.kill()
    return _since(scene.next_attempt(moment, seen), moment)


def worker_killed_twice(scene: Scene, server: Server, chance: random.Random) -> Outcome:
    """The second time while the group starts again."""
    seen = _names(scene)
    scene.worker(chance).kill()
    time.sleep(chance.uniform(1.0, 9.0))
    moment = time.time()
    scene.worker(chance).kill()
    return _since(scene.next_attempt(moment, seen), moment)


def worker_hung(scene: Scene, server: Server, chance: random.Random) -> Outcome:
    """Stopped, not ended: its sockets stay open, and nothing tells the others."""
    victim, seen = scene.worker(chance), _names(scene)
    log_before = scene.job.log.stat().st_size
    moment = time.time()
    victim.suspend()
    attempt = scene.next_attempt(moment, seen)
    told = scene.job.log.read_bytes()[log_before:].decode(errors="replace")
    named = "no longer answers" in told
    outcome = _since(attempt, moment, "" if named else "nobody named the worker that hung")
    outcome.recovered = named and (outcome.detected or 0) < TIMEOUT_SECONDS + 15
    return outcome


def node_killed(scene: Scene, server: Server, chance: random.Random) -> Outcome:
    """With all its processes; it comes back. An elastic group goes on meanwhile."""
    number, seen = chance.randrange(2), _names(scene)
    moment = time.time()
    scene.nodes.kill(number)
    elastic = scene.config.train.min_workers < scene.config.train.max_workers
    if not elastic:
        time.sleep(chance.uniform(0.5, 4.0))
        scene.nodes.back(number)
        return _since(scene.next_attempt(moment, seen), moment)
    outcome = _since(scene.next_attempt(moment, seen, 1), moment)
    seen, back = _names(scene), time.time()
    scene.nodes.back(number)
    grown = scene.next_attempt(back, seen, 2)
    outcome.note = f"grown again {grown.first - back:.0f} s after its return"
    return outcome


def driver_killed(scene: Scene, server: Server, chance: random.Random) -> Outcome:
    seen, moment = _names(scene), time.time()
    scene.job.signal(signal.SIGKILL)
    scene.job.wait(30)
    scene.start()
    return _since(scene.next_attempt(moment, seen), moment)


def _left_and_went_on(scene: Scene, number: int) -> Outcome:
    seen, moment = _names(scene), time.time()
    scene.job.signal(number)
    code = scene.job.wait(60)
    assert code == 128 + number, f"it left with {code} after signal {number}\n{scene.job.tail()}"
    scene.start()
    return _since(scene.next_attempt(moment, seen), moment)


def job_terminated(scene: Scene, server: Server, chance: random.Random) -> Outcome:
    return _left_and_went_on(scene, signal.SIGTERM)


def job_interrupted(scene: Scene, server: Server, chance: random.Random) -> Outcome:
    return _left_and_went_on(scene, signal.SIGINT)


def server_and_worker_killed(scene: Scene, server: Server, chance: random.Random) -> Outcome:
    """The tracking server is away for a while, and a worker dies meanwhile."""
    server.kill()
    time.sleep(chance.uniform(0.5, 3.0))
    outcome = worker_killed(scene, server, chance)
    time.sleep(chance.uniform(0.0, 3.0))
    server.start()
    return outcome


def store_failing(scene: Scene, server: Server, chance: random.Random) -> Outcome:
    """The checkpoints' folder is a file for some seconds, and the file that says how far it is a folder."""
    folder: Path = scene.until("a checkpoint", scene.checkpoints)[-1].parent
    seen, newest = _names(scene), scene.checkpoints()[-1].name
    away = folder.with_name("away")
    moment = time.time()
    os.rename(folder, away)
    folder.write_text("in the way")
    progress = _folder_in_place_of(folder.with_name(PROGRESS))
    time.sleep(chance.uniform(2.0, 6.0))
    progress.rmdir()
    folder.unlink()
    os.rename(away, folder)
    scene.until("a later checkpoint", lambda: scene.checkpoints()[-1].name > newest)
    again = [attempt for attempt in scene.attempts() if attempt.name not in seen]
    return _since(again[0], moment) if again and again[0].first < float("inf") else Outcome("", True, note="went on without a start")


def _folder_in_place_of(file: Path) -> Path:
    """Rank 0 writes the file again and again, and may be faster."""
    while not file.is_dir():
        file.unlink(missing_ok=True)
        with suppress(FileExistsError):
            file.mkdir()
    return file


def checkpoint_torn(scene: Scene, server: Server, chance: random.Random) -> Outcome:
    """A file of the newest checkpoint is altered, cut off or gone when a worker dies."""
    scene.until("two checkpoints", lambda: len(scene.checkpoints()) > 1)
    newest, seen = scene.checkpoints()[-1], _names(scene)
    file = chance.choice(sorted(path for path in newest.iterdir() if not path.name.endswith(".sha256")))
    content = bytearray(file.read_bytes())
    match chance.choice(["altered", "cut off", "gone"]):
        case "altered":
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            file.write_bytes(content)
        case "cut off":
            file.write_bytes(content[: chance.randrange(len(content))])
        case "gone":
            file.unlink()
    victim, moment = scene.worker(chance), time.time()
    victim.kill()
    return _since(scene.next_attempt(moment, seen), moment)


FAULTS: dict[str, Fault] = {
    "worker killed": worker_killed,
    "worker killed, and again at its start": worker_killed_twice,
    "worker hung": worker_hung,
    "node killed, and back": node_killed,
    "driver killed, same command again": driver_killed,
    "SIGTERM, same command again": job_terminated,
    "SIGINT, same command again": job_interrupted,
    "tracking server and a worker killed": server_and_worker_killed,
    "checkpoint store failing": store_failing,
    "newest checkpoint torn, worker killed": checkpoint_torn,
}
