"""Builds the image's root by the Dockerfile's own steps, and runs two containers of it.

    python -m tools.container FOLDER     # of about 1 GiB; kept, so that a second run is quick

A stage begins with a root of Debian that debootstrap makes; RUN is a shell in it, COPY a copy. A container is
that root as the lower layer of an overlay, in namespaces of its own for processes, mounts, host name, IPC
and network. The first one runs what the image runs; the second one, which shares nothing with it but the
volume, executes a burst on its driver. Wants root, debootstrap and unshare.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tools.container.dockerfile import Copy, Stage, read

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "contrib" / "container" / "Dockerfile"
#: Seconds until the driver must have made its socket.
PATIENCE = 60

CLIENT = """
import os, numpy as np, nnburst
from nnburst.testing.faults.activities import sum_model, summands, check_sum
with nnburst.connect("/run/nnburst/driver.sock") as device:
    with device.prepare(sum_model()) as prepared, prepared.open_burst() as burst:
        for number in range(1000):
            check_sum(burst.execute(summands(number)).outputs[0], number)
    print(f"1000 right results from {device.name} as process {os.getpid()}, user {os.getuid()}")
"""


def run(*words: str | Path, **options: object) -> subprocess.CompletedProcess[bytes]:
    """Run a command; its failure ends this program."""
    return subprocess.run(list(map(str, words)), check=True, **options)  # type: ignore[call-overload,no-any-return]


def debian(suite: str, root: Path) -> None:
    """A fresh root of a Debian release, from where this machine takes its packages."""
    mirrors = run("apt-get", "indextargets", "--format", "$(REPO_URI)", capture_output=True)
    mirror = mirrors.stdout.decode().split()[0]
    run("debootstrap", "--variant=minbase", suite, root, mirror)


def build(stages: list[Stage], folder: Path) -> Path:
    """The root of the last stage."""
    roots: dict[str, Path] = {}
    for number, stage in enumerate(stages):
        root = roots[stage.name or str(number)] = folder / (stage.name or f"stage{number}")
        done = root / "built"
        if done.exists():
            continue
        shutil.rmtree(root, ignore_errors=True)
        base = folder / f"base-{stage.base.replace(':', '-')}"
        if not (base / "made").exists():
            shutil.rmtree(base, ignore_errors=True)
            debian(stage.base.partition(":")[2].removesuffix("-slim"), base)
            (base / "made").touch()
        run("cp", "-a", base, root)
        for step in stage.steps:
            print(f"{stage.name or 'image'}: {step}", flush=True)
            if isinstance(step, Copy):
                copy(step, root, roots)
            else:
                inside(root, ["sh", "-c", step], stage.environment)
        done.touch()
    return root


def copy(step: Copy, root: Path, roots: dict[str, Path]) -> None:
    """COPY: a directory's content into a directory, files into one."""
    source_root = roots[step.stage] if step.stage else ROOT
    target = root / step.target.lstrip("/")
    for name in step.sources:
        source = source_root / name.lstrip("/")
        if source.is_dir():
            built = () if step.stage else ("__pycache__", "*.so", "*.egg-info")
            shutil.copytree(
                source,
                target,
                symlinks=True,
                dirs_exist_ok=True,
                ignore=shutil.ignore_patterns(*built),
            )
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def inside(root: Path, words: list[str], environment: dict[str, str]) -> None:
    """Run a step of the build in a root, with this machine's settings of pip and certificates."""
    settings = {k: v for k, v in os.environ.items() if k.startswith("PIP_") or k.endswith("_proxy")}
    for name in filter(None, [os.environ.get("PIP_CERT"), "/etc/resolv.conf", "/etc/pip.conf"]):
        if Path(name).exists():
            (root / name.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(name, root / name.lstrip("/"))
    path = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    everything = {**path, "DEBIAN_FRONTEND": "noninteractive", **settings, **environment}
    run(
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        f"--root={root}",
        "--mount-proc=/proc",
        *words,
        env=everything,
    )


def container(root: Path, name: str, volume: Path, stage: Stage, words: list[str]) -> list[str]:
    """The command that runs words as a container of a root."""
    layers = volume.parent / name
    for layer in ("upper", "work", "merged"):
        (layers / layer).mkdir(parents=True, exist_ok=True)
    merged = layers / "merged"
    shared = merged / stage.volumes[0].lstrip("/")
    settings = " ".join(f"{key}={value}" for key, value in stage.environment.items())
    script = (
        f"mount -t overlay overlay -o lowerdir={root},upperdir={layers}/upper,workdir={layers}/work {merged}"
        f" && mount --bind {volume} {shared} && mount -t proc proc {merged}/proc"
        f" && mount -t devtmpfs dev {merged}/dev && hostname {name} && ip link set lo up 2>/dev/null;"
        f' exec chroot --userspec={stage.user} {merged} env -i {settings} "$@"'
    )
    spaces = ["--mount", "--pid", "--fork", "--ipc", "--uts", "--net", "--kill-child"]
    return ["unshare", *spaces, "sh", "-c", script, "sh", *words]


def stop(driver: subprocess.Popen[bytes]) -> None:
    """Ask the container's first process to end, as `docker stop` does."""
    children = Path(f"/proc/{driver.pid}/task/{driver.pid}/children")
    for pid in children.read_text().split() if driver.poll() is None else []:
        os.kill(int(pid), signal.SIGTERM)
    print(f"the driver's container has ended with status {driver.wait(PATIENCE)}")


def main(folder: Path) -> int:
    """Build, serve in one container, compute from another; 1 if that fails."""
    if missing := [name for name in ("debootstrap", "unshare") if shutil.which(name) is None]:
        print(
            f"make container needs {' and '.join(missing)}, of Debian's packages", file=sys.stderr
        )
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    stages = read(DOCKERFILE)
    root = build(stages, folder)
    image, volume = stages[-1], folder / "run" / "volume"
    shutil.rmtree(volume.parent, ignore_errors=True)
    shutil.copytree(root / image.volumes[0].lstrip("/"), volume)
    owner = (root / image.volumes[0].lstrip("/")).stat()
    os.chown(volume, owner.st_uid, owner.st_gid)
    with subprocess.Popen(container(root, "driver", volume, image, image.command)) as driver:
        try:
            deadline = time.monotonic() + PATIENCE
            while not (volume / "driver.sock").exists():
                if driver.poll() is not None or time.monotonic() > deadline:
                    print("the driver's container made no socket", file=sys.stderr)
                    return 1
                time.sleep(0.05)
            check = container(root, "health", volume, image, image.health)
            if status := subprocess.run(check, check=False).returncode:
                print(f"HEALTHCHECK fails with status {status}", file=sys.stderr)
                return 1
            client = container(root, "client", volume, image, ["python3", "-c", CLIENT])
            return subprocess.run(client, check=False).returncode
        finally:
            stop(driver)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
