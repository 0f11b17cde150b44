"""Stages that need not wait for imports: every one is a fork of a process that has the large packages, none of ours.

Of the seconds that a stage of the small project takes, most go into importing Prefect, MLflow and torch. They are read
once here. What runs afterwards is a process of its own, with its own modules of the project, and ends as others do.

python warm_start.py serve <socket>                   import, say `ready`, then fork a process a request
python warm_start.py ask <socket> -m <module> [...]   as `python -m <module> [...]`, in such a fork
"""

import gc
import json
import os
import runpy
import signal
import socket
import sys
from pathlib import Path

PACKAGES = [
    "fastapi",
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
]
LARGEST = 1 << 20


def serve(address: str) -> list[str] | None:
    """Fork for each request; returns in the fork alone, with what to run."""
    for name in PACKAGES:
        __import__(name)
    gc.freeze()  # forks share what is there; a collection would copy all of it
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    print("ready", flush=True)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how those who answer ended
    while True:
        request, _ = listener.accept()
        if os.fork():
            request.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        message, streams, _, _ = socket.recv_fds(request, LARGEST, 3)
        wanted = json.loads(message)
        running = os.fork()
        if running:
            _, status = os.waitpid(running, 0)
            request.sendall(str(os.waitstatus_to_exitcode(status) % 256).encode())
            os._exit(0)
        listener.close()
        request.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(wanted["folder"])
        os.environ.clear()
        os.environ.update(wanted["environment"])
        return wanted["command"]


def ask(address: str, command: list[str]) -> int:
    """Have a fork run the command with our streams, folder and environment; returns its exit code."""
    wanted = {"command": command, "folder": str(Path.cwd()), "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX) as request:
        request.connect(address)
        socket.send_fds(request, [json.dumps(wanted).encode()], [0, 1, 2])
        return int(request.recv(16) or 1)


if __name__ == "__main__":
    action, place, *rest = sys.argv[1:]
    if action == "ask":
        sys.exit(ask(place, rest))
    _, module, *arguments = serve(place)
    sys.path[0] = str(Path.cwd())
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
