"""The reader of Dockerfiles behind `make container` takes the project's own and refuses the unknown."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.container.dockerfile import Copy, read

DOCKERFILE = Path(__file__).resolve().parents[2] / "contrib" / "container" / "Dockerfile"


def test_image_is_read_with_its_stages_and_what_a_container_runs() -> None:
    build, image = read(DOCKERFILE)
    assert (build.name, image.name) == ("build", "")
    assert image.steps[1] == Copy(["/opt/nnburst"], "/opt/nnburst", "build")
    assert image.command[:2] == ["nnburst", "serve"]
    assert image.command[-1] == "litert"
    assert image.command[2].startswith(image.volumes[0])
    assert image.user == "nnburst"


def test_sources_that_are_copied_are_there() -> None:
    copies = [step for step in read(DOCKERFILE)[0].steps if isinstance(step, Copy)]
    for name in (name for step in copies for name in step.sources):
        assert (DOCKERFILE.parents[2] / name).exists()


@pytest.mark.parametrize("line", ["HEALTHCHECK CMD true", "RUN too early"])
def test_instruction_that_is_not_understood_is_refused_with_its_line(
    line: str, tmp_path: Path
) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text(line if line.startswith("RUN") else f"FROM debian:bookworm\n{line}\n")
    with pytest.raises(ValueError, match=rf"{path}:\d: {line.split()[0]} is not understood"):
        read(path)
