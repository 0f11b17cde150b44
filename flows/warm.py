"""Stages that need not wait for imports: a process that has read the large packages forks one for each of them.

Of what a quick stage takes, most would go into importing Prefect, MLflow and torch. A run of the pipeline reads them
once, when the first stage asks. What runs is a process of its own all the same, with its own modules of the project.

python -m flows.warm <socket>     answer on a socket until standard input ends
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

WARM = "FIRMBOUND_WARM"  # the socket, in the environment of those who may ask
PACKAGES = (
    "gpytorch",
    "jinja2",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
    "matplotlib.figure",
    "mlflow",
    "mlflow.pyfunc",
    "mlflow.store.model_registry.sqlalchemy_store",
    "mlflow.store.tracking.sqlalchemy_store",
    "mpl_toolkits.mplot3d",
    "numpy",
    "optuna",
    "pandas",
    "prefect",
    "prefect.flow_engine",
    "prefect.task_runners",
    "psutil",
    "pydantic",
    "rich",
    "ruamel.yaml",
    "safetensors.numpy",
    "scipy.linalg",
    "scipy.optimize",
    "scipy.spatial",
    "scipy.special",
    "scipy.stats",
    "sklearn.base",
    "torch",
    "yaml",
    "zarr",
)
LARGEST = 1 << 20  # bytes that are read at once
GRACE_SECONDS = 10


@contextmanager
def warm_stages() -> Iterator[None]:
    """While this lasts, `python -m flows` hands its work over to forks of a warm process; one that is there is used."""
    if os.environ.get(WARM):
        yield
        return
    with TemporaryDirectory(prefix="firmbound-") as folder:
        address = str(Path(folder) / "warm")
        command = [sys.executable, "-m", "flows.warm", address]
        server = subprocess.Popen(command, stdin=subprocess.PIPE)
        assert server.stdin is not None
        os.environ[WARM] = address
        try:
            yield
        finally:
            del os.environ[WARM]
            server.stdin.close()
            server.wait()


def hand_over(module: str, arguments: list[str]) -> int | None:
    """Have a fork of the warm process run the module with our streams, folder and environment; returns its exit code.

    None where there is no such process: then the module is run here.
    """
    address = os.environ.get(WARM)
    if not address:
        return None
    wanted = {"module": module, "arguments": arguments, "folder": str(Path.cwd()), "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX) as request:
        try:
            request.connect(address)
        except OSError:
            return None
        message = memoryview(json.dumps(wanted).encode() + b"\n")
        request.sendall(message[socket.send_fds(request, [message], [0, 1, 2]) :])
        said = request.recv(16)
    return int(said) if said else 1


def serve(address: str) -> None:
    """Fork for each request until standard input ends; returns in a fork alone, which then runs what was asked for."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers answer for themselves
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is for stages; we end with the pipeline
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        request, _ = listener.accept()
        import_packages()
        if os.fork():
            request.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        listener.close()
        message, streams, _, _ = socket.recv_fds(request, LARGEST, 3)
        while not message.endswith(b"\n") and (more := request.recv(LARGEST)):  # one call brings some 30 KB
            message += more
        stage = os.fork()
        if stage:
            os._exit(keep(stage, request))
        request.close()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        take_over(message, streams)
        return
    with contextlib.suppress(ChildProcessError):  # as children are not counted, this waits for all keepers
        os.waitpid(-1, 0)
    os._exit(0)


def import_packages() -> None:
    """Once. Not before somebody asks: often there is nothing to run."""
    if "prefect" in sys.modules:
        return
    for name in PACKAGES:
        with contextlib.suppress(ImportError):  # who needs it will say so
            import_module(name)
    gc.freeze()  # forks share what is there; a collection would copy all of it


def keep(stage: int, request: socket.socket) -> int:
    """Wait for the stage and tell how it ended. If whoever asked is gone, end it: nobody may write beside his heirs."""
    ended = os.pidfd_open(stage)
    if ended not in select.select([ended, request.fileno()], [], [])[0]:
        os.kill(stage, signal.SIGTERM)
        if not select.select([ended], [], [], GRACE_SECONDS)[0]:
            os.kill(stage, signal.SIGKILL)
    _, status = os.waitpid(stage, 0)
    code = os.waitstatus_to_exitcode(status)
    with contextlib.suppress(OSError):
        request.sendall(str(code if code >= 0 else 128 - code).encode())
    return 0


def take_over(message: bytes, streams: list[int]) -> None:
    """Become what was asked for: streams, folder, environment, arguments."""
    wanted = json.loads(message)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    time.tzset()
    run_here(wanted["module"], wanted["arguments"])


def run_here(module: str, arguments: list[str]) -> None:
    """As `python -m <module> <arguments>`."""
    sys.path[0] = str(Path.cwd())
    sys.argv = [module, *arguments]
    for name in [name for name in sys.modules if name.split(".")[0] in ("firmbound", "flows")]:
        del sys.modules[name]  # of the project as it was when the warm process began
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    serve(sys.argv[1])
