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


def kill_worker(scene: Scene, server: Server, chance: random.Random) -> Outcome:
    victim, earlier = scene.worker(chance), _names(scene)
    moment = time.time()
    victim.kill()
    return _since(scene.next_attempt(moment, earlier), moment)


def kill_worker_twice(scene: Scene, server: Server, chance: random.Random) -> Outcome:
    """Kill one, and again one while the group starts again."""
    earlier = _names(scene)
    scene.worker(chance).kill()
    time.sleep(chance.uniform(1.0, 9.0))
    moment = time.time()
    scene.worker(chance).kill()
    return _since(scene.next_attempt(moment, earlier), moment)


def suspend_worker(scene: Scene, server: Server, chance: random.Random) -> Outcome:
    """Stop a worker without ending it: its sockets stay open, and nothing tells the others."""
    victim, earlier = scene.worker(chance), _names(scene)
    log_before = scene.job.log.stat().st_size
    moment = time.time()
    victim.suspend()
    attempt = scene.next_attempt(moment, earlier)
    printed = scene.job.log.read_bytes()[log_before:].decode(errors="replace")
    is_named = "no longer answers" in printed
    outcome = _since(attempt, moment, "" if is_named else "nobody named the worker that hung")
    outcome.recovered = is_named and (outcome.detected or 0) < TIMEOUT_SECONDS + 15
    return outcome


def kill_node(scene: Scene, server: Server, chance: random.Random) -> Outcome:
    """Kill all processes of a node, and start it again. An elastic group goes on meanwhile."""
    number, earlier = chance.randrange(2), _names(scene)
    moment = time.time()
    scene.nodes.kill(number)
    elastic = scene.config.train.min_workers < scene.config.train.max_workers
    if not elastic:
        time.sleep(chance.uniform(0.5, 4.0))
        scene.nodes.restart_node(number)
        return _since(scene.next_attempt(moment, earlier), moment)
    outcome = _since(scene.next_attempt(moment, earlier, 1), moment)
    earlier, return_time = _names(scene), time.time()
    scene.nodes.restart_node(number)
    grown = scene.next_attempt(return_time, earlier, 2)
    outcome.note = f"grown again {grown.first - return_time:.0f} s after its return"
    return outcome


def kill_driver(scene: Scene, server: Server, chance: random.Random) -> Outcome:
    earlier, moment = _names(scene), time.time()
    scene.job.signal(signal.SIGKILL)
    scene.job.wait(30)
    scene.start()
    return _since(scene.next_attempt(moment, earlier), moment)


def _signal_and_restart(scene: Scene, number: int) -> Outcome:
    earlier, moment = _names(scene), time.time()
    scene.job.signal(number)
    code = scene.job.wait(60)
    assert code == 128 + number, f"it left with {code} after signal {number}\n{scene.job.tail()}"
    scene.start()
    return _since(scene.next_attempt(moment, earlier), moment)


def terminate_job(scene: Scene, server: Server, chance: random.Random) -> Outcome:
    return _signal_and_restart(scene, signal.SIGTERM)


def interrupt_job(scene: Scene, server: Server, chance: random.Random) -> Outcome:
    return _signal_and_restart(scene, signal.SIGINT)


def kill_server_and_worker(scene: Scene, server: Server, chance: random.Random) -> Outcome:
    """Take the tracking server away for a while, and kill a worker meanwhile."""
    server.kill()
    time.sleep(chance.uniform(0.5, 3.0))
    outcome = kill_worker(scene, server, chance)
    time.sleep(chance.uniform(0.0, 3.0))
    server.start()
    return outcome


def break_store(scene: Scene, server: Server, chance: random.Random) -> Outcome:
    """For some seconds put a file in place of the checkpoints' folder, and a folder in place of the progress file."""
    folder: Path = scene.wait_for("a checkpoint", scene.checkpoints)[-1].parent
    earlier, newest = _names(scene), scene.checkpoints()[-1].name
    away = folder.with_name("away")
    moment = time.time()
    os.rename(folder, away)
    folder.write_text("in the way")
    progress = _replace_by_folder(folder.with_name(PROGRESS))
    time.sleep(chance.uniform(2.0, 6.0))
    progress.rmdir()
    folder.unlink()
    os.rename(away, folder)
    scene.wait_for("a later checkpoint", lambda: scene.checkpoints()[-1].name > newest)
    later = [attempt for attempt in scene.attempts() if attempt.name not in earlier]
    return _since(later[0], moment) if later and later[0].first < float("inf") else Outcome("", True, note="went on without a start")


def _replace_by_folder(file: Path) -> Path:
    """Try until it holds: rank 0 writes the file again and again, and may be faster."""
    while not file.is_dir():
        file.unlink(missing_ok=True)
        with suppress(FileExistsError):
            file.mkdir()
    return file


def tear_checkpoint(scene: Scene, server: Server, chance: random.Random) -> Outcome:
    """Alter, truncate or delete a file of the newest checkpoint, and kill a worker."""
    scene.wait_for("two checkpoints", lambda: len(scene.checkpoints()) > 1)
    newest, earlier = scene.checkpoints()[-1], _names(scene)
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
    return _since(scene.next_attempt(moment, earlier), moment)


FAULTS: dict[str, Fault] = {
    "worker killed": kill_worker,
    "worker killed, and again at its start": kill_worker_twice,
    "worker hung": suspend_worker,
    "node killed, and back": kill_node,
    "driver killed, same command again": kill_driver,
    "SIGTERM, same command again": terminate_job,
    "SIGINT, same command again": interrupt_job,
    "tracking server and a worker killed": kill_server_and_worker,
    "checkpoint store failing": break_store,
    "newest checkpoint torn, worker killed": tear_checkpoint,
}
