"""Processes that train together on this machine, joined by TF_CONFIG."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from tiny_run import experiment

from show_attend_tell.config.settings import experiment_to_toml

ROOT = Path(__file__).parents[2]


def free_addresses(count: int) -> list[str]:
    """Return addresses with free ports."""
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{server.getsockname()[1]}" for server in servers]
    for server in servers:
        server.close()
    return addresses


class Training:
    """The same training in several processes.

    Args:
        folder: the runs' folder is ``folder / "runs"``, the settings are written here.
        work: the prepared data, or a list with the data of each worker.
        count: number of workers.
        code: run in every process before the training, such as patches.
        options: further options of ``train``, or a list with each worker's options.
        changes: changed settings of the tiny experiment.
    """

    def __init__(self, folder, work, count=2, code="", options=(), **changes):
        folder.mkdir(exist_ok=True)
        file = folder / "tiny.toml"
        file.write_text(experiment_to_toml(experiment(**changes)))
        works = work if isinstance(work, list) else [work] * count
        every = options if isinstance(options, list) else [options] * count
        addresses = free_addresses(count)
        self.folder, self.runs, self.processes = folder, folder / "runs", []
        paths = [str(ROOT), str(ROOT / "tests" / "support")]
        for rank, (place, added) in enumerate(zip(works, every, strict=True)):
            script = f"import sys; sys.path[:0] = {paths}; rank = {rank}\n{code}\n"
            script += "from show_attend_tell.cli.main import main; main()"
            arguments = ["train", "-e", file, "--work", place, "--runs", self.runs]
            task = {"type": "worker", "index": rank}
            config = {"cluster": {"worker": addresses}, "task": task}
            env = {
                **{k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"},
                **({"TF_CONFIG": json.dumps(config)} if count > 1 else {}),
                **{"TF_NUM_INTRAOP_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
            }
            command = [sys.executable, "-c", script, *map(str, [*arguments, *added])]
            # Into files: a process whose pipe is full would block the others.
            with self._file("out", rank).open("w") as out:
                with self._file("err", rank).open("w") as err:
                    process = subprocess.Popen(command, env=env, stdout=out, stderr=err)
            self.processes.append(process)

    def _file(self, kind: str, rank: int) -> Path:
        return self.folder / f"{kind}-{rank}.txt"

    def end(self, seconds=240) -> list[tuple[int, str, str]]:
        """Return exit status, output and errors of each process."""
        try:
            codes = [process.wait(timeout=seconds) for process in self.processes]
        finally:
            for process in self.processes:
                process.kill()
                process.wait()
        return [
            (code, *(self._file(kind, rank).read_text() for kind in ("out", "err")))
            for rank, code in enumerate(codes)
        ]
