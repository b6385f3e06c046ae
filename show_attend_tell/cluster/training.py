"""Train a captioner in several workers of a Ray cluster.

Ray Train starts the workers, and ``jax.distributed`` joins them: JAX then divides a
batch among the devices of all, see :mod:`training.step_jax`. If a worker ends, Ray
Train stops the others and starts all again, up to :data:`_FAILURES` times; they
continue from the last checkpoint.
"""

import contextlib
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from show_attend_tell.cluster.pool import Cluster, connected
from show_attend_tell.config import runs
from show_attend_tell.config.settings import Experiment, TrainingSettings
from show_attend_tell.data.splits import load_splits, open_features
from show_attend_tell.runtime.errors import (
    ConfigError,
    SetupError,
    ShowAttendTellError,
    TrainingError,
    one_line,
    plural,
)
from show_attend_tell.runtime.files import atomic_write
from show_attend_tell.runtime.keras_startup import start_keras

if TYPE_CHECKING:
    from show_attend_tell.training.loop import Summary
    from show_attend_tell.training.workers import Workers

logger = logging.getLogger(__name__)

_FAILURES = 5  # restarts of a training
_RAY = ".ray"  # begins the name of the folder for Ray's own files
_FAULT = "fault"  # file in it: the line of an error that would occur again
# Begins the name of a file of the driver. Another machine's folder at the same path is
# a different folder, without this file.
_DRIVER = ".driver-"
_OPENED = "opened"  # content of the driver's file after the run was opened


def train_on_cluster(
    experiment: Experiment,
    work: str | Path = "prepared",
    runs_folder: str | Path = "experiments/runs",
    resume: bool = False,
    overwrite: bool = False,
    *,
    cluster: str,
    count: int | None = None,
) -> "Summary":
    """Train an experiment on several workers of a Ray cluster.

    Args:
        experiment: the settings.
        work: every node sees it.
        runs_folder: every node sees it.
        resume: continue from the run's checkpoint.
        overwrite: replace an earlier run.
        cluster: see :func:`cluster.pool.connected`.
        count: number of workers; by default one per GPU, or per processor if there is
            no GPU.

    Raises:
        ConfigError: the workers cannot divide a batch among them.
        SetupError: the cluster cannot be used, or workers have failed too many times.
        TrainingError: a worker differs, or see :func:`training.train.train`.
        DataError: see :func:`training.train.train`.
    """
    with open_features(experiment, work) as reader:  # before workers are started
        load_splits(experiment, work, ("train", "val"), reader)
    runs_folder = Path(runs_folder).absolute()
    folder = runs_folder / experiment.name
    with connected(cluster) as nodes:
        count = _number_of_workers(nodes, count)
        _require_divisible(experiment.training, count)
        # The driver holds the lock for all workers: they may be started again.
        with runs.lock_run(experiment, runs_folder):
            # Worker 0 opens the run later. A refusal should not wait for workers.
            runs.require_openable(experiment, runs_folder, resume, overwrite)
            logger.info("%s: trains on %s", folder, plural(count, "worker"))
            with tempfile.NamedTemporaryFile(dir=runs_folder, prefix=_DRIVER) as file:
                arguments = {
                    "experiment": experiment,
                    "work": os.path.abspath(work),
                    "runs_folder": str(runs_folder),
                    "resume": resume,
                    "overwrite": overwrite,
                    "driver_file": file.name,
                    "directory": os.getcwd(),
                }
                ray_folder = folder.with_name(f"{_RAY}-{folder.name}")
                return run_together(
                    nodes, train_as_worker, arguments, ray_folder, count
                )


def _number_of_workers(cluster: Cluster, count: int | None) -> int:
    """Return the number of workers, each of which has a GPU or a processor."""
    kind = "GPUs" if cluster.gpus else "processors"
    available = cluster.gpus or max(cluster.processors, 1)
    if count is not None and count > available:
        raise SetupError(
            f"`workers` must be at most the {available} {kind} of the cluster. "
            f"Received: {count}; start more nodes, or pass fewer workers"
        )
    return count or available


def _require_divisible(settings: TrainingSettings, count: int) -> None:
    """Raise a ConfigError unless workers can divide a batch among them."""
    name = "training.batch_size"
    rows = settings.batch_size
    if settings.objective == "cider":  # all captions of a photo are on one device
        name = "batch_size / hypotheses"
        rows = rows // settings.hypotheses
    if rows % count:
        raise ConfigError(
            f"`{name}` must be a multiple of the {count} workers, as a batch is "
            f"divided among them. Received: {rows}; change training.batch_size, or "
            "pass another number of --workers"
        )


def train_as_worker(
    workers: "Workers",
    experiment: Experiment,
    work: str,
    runs_folder: str,
    resume: bool,
    overwrite: bool,
    driver_file: str,
    directory: str,
) -> "Summary":
    """Train in one of the workers.

    The chief opens the run when all workers have verified what they read, so that an
    earlier run is replaced last. Workers that are started again continue the run.

    Args:
        workers: the workers that train together.
        experiment: the settings.
        work: folder of prepared data.
        runs_folder: folder of the run folder, whose lock the driver holds.
        resume: see :func:`train_on_cluster`.
        overwrite: see :func:`train_on_cluster`.
        driver_file: a file of the driver, empty until the run is opened.
        directory: the driver's working directory, to which the path of an initial model
            is relative, if this worker sees it.

    Raises:
        TrainingError: this node does not see the folder of the runs; or see
            :func:`training.train.train`.
        ConfigError, DataError, ModelFileError: see :func:`training.train.train`.
        SetupError: worker 0 trains something else.
    """
    from show_attend_tell.training.train import make_trainer, open_run

    # Ray starts a worker in the folder in which its node was started.
    if os.path.isdir(directory):
        os.chdir(directory)
    folder = Path(runs_folder, experiment.name)
    file = Path(driver_file)
    if not file.is_file():
        raise TrainingError(
            f"{folder.parent}: the folder of the runs is not visible here; pass a "
            "folder to --runs that every worker mounts at the same path"
        )
    # Only the chief looks into the run folder: another node may remember for a while
    # that a file was absent.
    is_open = workers.is_chief and file.read_text() == _OPENED
    has_checkpoint = workers.is_chief and (folder / runs.CHECKPOINT).exists()
    is_open, has_checkpoint = workers.broadcast((is_open, has_checkpoint))
    resume = has_checkpoint if is_open else resume
    with contextlib.ExitStack() as stack:
        trainer = make_trainer(stack, experiment, work, runs_folder, resume, workers)
        workers.broadcast("verified")  # returns when all workers have come this far
        if workers.is_chief and not is_open:
            open_run(trainer.task, work, runs_folder, resume, overwrite)
            # After the run is opened: a worker that ends in between opens it again.
            file.write_text(_OPENED)
        return trainer.run(folder, resume, progress=False)


def run_together(
    cluster: Cluster,
    function: Callable[..., Any],
    arguments: dict[str, Any],
    folder: Path,
    count: int,
) -> Any:
    """Run a function in workers of one processor each; return the first one's value.

    Args:
        cluster: the cluster; on a cluster with GPUs each worker also has a GPU.
        function: a function of a module. Its first argument are the :class:`Workers`.
            After a failure all workers are started again, so it must continue from
            what it has written.
        arguments: its other arguments.
        folder: a folder that every node sees, for Ray's own files; removed at the end.
        count: number of workers.

    Raises:
        SetupError: workers have failed too many times.
        TrainingError: the function has raised an error of this package or of a file.
    """
    for name in ("RAY_TRAIN_METRICS_ENABLED", "RAY_CHDIR_TO_TRIAL_DIR"):
        os.environ.setdefault(name, "0")
    from ray.train import TrainingFailedError
    from ray.train.v2.api.config import FailureConfig, RunConfig, ScalingConfig
    from ray.train.v2.jax import JaxConfig, JaxTrainer

    logging.getLogger("ray").setLevel(logging.ERROR)
    shutil.rmtree(folder, ignore_errors=True)  # of a driver that was killed
    folder.mkdir(parents=True)
    resources = {"CPU": 1, "GPU": 1} if cluster.gpus else {"CPU": 1}
    trainer = JaxTrainer(
        _work,
        train_loop_config={
            "function": function,
            "arguments": arguments,
            "fault": str(folder / _FAULT),
        },
        # JaxTrainer would join no workers without GPUs, and takes the first GPUs of a
        # machine for each worker on it.
        jax_config=JaxConfig(use_tpu=False, use_gpu=False),
        scaling_config=ScalingConfig(
            num_workers=count,
            use_gpu=bool(cluster.gpus),
            resources_per_worker=resources,
        ),
        run_config=RunConfig(
            name="job",
            storage_path=str(folder),
            failure_config=FailureConfig(max_failures=_FAILURES),
        ),
    )
    try:
        result: Any = trainer.fit()  # whose value Ray types as optional
    except TrainingFailedError as error:
        raise SetupError(
            f"the workers have failed {_FAILURES + 1} times ({_cause(error)}); "
            "repair the cause, then continue with --resume"
        ) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    value, fault = result.return_value
    if fault is not None:
        raise TrainingError(fault)
    return value


def _cause(error: Exception) -> str:
    """Return the line of the first worker's error that names the cause."""
    failures = getattr(error, "worker_failures", {}) or {}
    text = str(next(iter(failures.values()), error))
    # The last line of a traceback is the error.
    lines = [line for line in text.splitlines() if line.strip()]
    return one_line(lines[-1] if lines else error)


def _work(config: dict[str, Any]) -> tuple[Any, str | None]:
    """Run the function in a worker.

    Returns:
        Its value and None, or None and the line of an error that would occur again.
    """
    fault = Path(config["fault"])
    # A restarted worker returns the error as a value. Raised again, it would be tried
    # until the last of the restarts.
    if fault.exists():
        return None, fault.read_text()
    try:
        value = config["function"](_join(), **config["arguments"])
    except (ShowAttendTellError, OSError) as error:
        atomic_write(fault, one_line(error, 1000))
        raise  # Ray Train stops the other workers, which wait for this one
    import jax

    # Only after success: it waits for the other workers.
    jax.distributed.shutdown()
    return value, None


def _join() -> "Workers":
    """Start JAX with the devices of all workers.

    Raises:
        SetupError: JAX is not installed here, or the workers do not reach each other.
    """
    from ray import train
    from ray.train.collective import broadcast_from_rank_zero
    from ray.util import get_node_ip_address

    os.environ["KERAS_BACKEND"] = "jax"
    for name in ("NPROC", "OMP_NUM_THREADS"):  # threads of XLA, and of libraries
        os.environ[name] = "1"
    host = socket.gethostname()
    try:
        import jax
    except ImportError as error:
        raise SetupError(
            f"worker on {host}: JAX cannot be imported ({one_line(error)}); run pip "
            "install 'show-attend-tell[jax]' on every node"
        ) from None
    context = train.get_context()
    rank = context.get_world_rank()
    count = context.get_world_size()
    # Each worker finds a free port, of which worker 0's is used.
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    address = broadcast_from_rank_zero(f"{get_node_ip_address()}:{port}")
    try:
        jax.distributed.initialize(address, count, rank)
    except RuntimeError as error:
        raise SetupError(
            f"worker on {host}: cannot join the others at {address} "
            f"({one_line(error)}); let all nodes reach each other's ports"
        ) from None
    # After joining, because JAX must not compute before `initialize`.
    start_keras()
    from show_attend_tell.training.workers import Workers

    return Workers(rank, count, broadcast_from_rank_zero)
