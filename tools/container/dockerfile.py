"""Reads a Dockerfile: as much of the language as this project's uses, and refuses the rest by name."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Copy:
    """COPY: what goes where, from the sources or from another stage."""

    sources: list[str]
    target: str
    stage: str = ""


@dataclass
class Stage:
    """One FROM and what follows it.

    Attributes:
        base: name of the image that it begins with.
        steps: commands of RUN and Copy, in order.
        environment: of its containers.
        user: that its containers run as.
        command: words of ENTRYPOINT and CMD.
        volumes: directories that containers may share.
        ports: that its containers may be reached at.
        health: words of the command that succeeds while a container is healthy; empty without one.
    """

    base: str
    name: str = ""
    steps: list[str | Copy] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    user: str = "root"
    entrypoint: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    volumes: list[str] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    health: list[str] = field(default_factory=list)

    @property
    def command(self) -> list[str]:
        """The words that a container of it runs."""
        return [*self.entrypoint, *self.arguments]


def read(path: Path) -> list[Stage]:
    """The stages of a Dockerfile.

    Raises:
        ValueError: it has an instruction that is not understood; the message has its line.
    """
    stages: list[Stage] = []
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, *named = rest.split()
            stages.append(Stage(base, named[1] if named else ""))
            continue
        if not stages or not _take(stages[-1], word, rest):
            raise ValueError(f"{path}:{number}: {word} is not understood here: {line}")
    return stages


def _take(stage: Stage, word: str, rest: str) -> bool:
    """One instruction of a stage; False if it is not understood."""
    match word:
        case "RUN":
            stage.steps.append(rest)
        case "COPY":
            *sources, target = shlex.split(rest)
            options = [source for source in sources if source.startswith("--")]
            stage.steps.append(
                Copy(
                    [source for source in sources if source not in options],
                    target,
                    "".join(option.removeprefix("--from=") for option in options),
                )
            )
        case "ENV":
            stage.environment |= dict(pair.split("=", 1) for pair in shlex.split(rest))
        case "USER":
            stage.user = rest.strip()
        case "VOLUME":
            stage.volumes.append(rest.strip())
        case "EXPOSE":
            stage.ports += [int(port) for port in rest.split()]
        case "HEALTHCHECK":
            _, found, words = rest.partition("CMD ")
            if not found or not words.startswith("["):
                return False
            stage.health = json.loads(words)
        case "ENTRYPOINT":
            stage.entrypoint = json.loads(rest)
        case "CMD":
            stage.arguments = json.loads(rest)
        case _:
            return False
    return True
