"""Commands are found, run and ended, shown with commands that the tests write themselves."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import nnburst.cli
from nnburst.cli import main
from nnburst.executor.built_in import BUILT_IN

#: Seconds that a command may take on a busy machine.
PATIENCE = 60

AddCommand = Callable[[str, str], None]


@pytest.fixture
def add_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AddCommand]:
    """Adds a command module with the given body of `run` to the command line."""
    # Its own folder alone: other commands may be heavy to import and are not what is tested.
    monkeypatch.setattr(nnburst.cli, "__path__", [str(tmp_path)])
    added = []

    def add(module: str, body: str) -> None:
        source = f"""
            def prepare_parser(subparsers):
                parser = subparsers.add_parser("{module.rpartition("_")[2]}", help="{module} help")
                parser.add_argument("--count", type=int, default=1)

            def run(args):
                {body}
            """
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(source))
        added.append(f"nnburst.cli.{module}")

    yield add
    for name in added:
        sys.modules.pop(name, None)
        vars(nnburst.cli).pop(name.rpartition(".")[2], None)


def test_command_returns_its_exit_status(add_command: AddCommand) -> None:
    add_command("probe", "return args.count")
    assert main(["probe", "--count", "7"]) == 7


def test_module_with_group_prefix_is_nested_command(add_command: AddCommand) -> None:
    add_command("bench_probe", "return 5")
    assert main(["bench", "probe"]) == 5


def test_only_the_module_of_the_command_is_imported(add_command: AddCommand) -> None:
    add_command("probe", "return 0")
    add_command("other", "return 0")
    assert main(["-v", "probe"]) == 0
    assert "nnburst.cli.other" not in sys.modules


@pytest.mark.parametrize("words", [["--help"], ["bench", "--help"]])
def test_help_lists_commands(
    words: list[str], add_command: AddCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    add_command("bench_probe", "return 5")
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    assert ("bench_probe help" if len(words) == 2 else "measure latency") in capsys.readouterr().out


def test_unknown_command_is_wrong_usage_and_names_the_known_ones(
    add_command: AddCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    add_command("probe", "return 0")
    with pytest.raises(SystemExit) as ended:
        main(["prob"])
    assert ended.value.code == 2
    assert "probe" in capsys.readouterr().err


def test_module_without_parser_is_not_a_command(add_command: AddCommand, tmp_path: Path) -> None:
    add_command("probe", "return 0")
    (tmp_path / "helper.py").write_text("VALUE = 1\n")
    with pytest.raises(SystemExit) as ended:
        main(["helper"])
    assert ended.value.code == 2


def test_nnburst_error_is_one_line_on_stderr(
    add_command: AddCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    add_command("probe", "from nnburst.hal.errors import Closed; raise Closed('burst is closed')")
    assert main(["probe"]) == 1
    assert capsys.readouterr().err == "nnburst: burst is closed\n"


def test_ctrl_c_exits_with_130(add_command: AddCommand) -> None:
    add_command("probe", "raise KeyboardInterrupt")
    assert main(["probe"]) == 130


def test_other_exceptions_are_bugs_and_stay_visible(add_command: AddCommand) -> None:
    add_command("probe", "raise ZeroDivisionError")
    with pytest.raises(ZeroDivisionError):
        main(["probe"])


def test_version_names_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.startswith("nnburst ")


def test_command_without_stdout_runs(
    add_command: AddCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_command(
        "probe", "from nnburst.cli.output import table; table('T', ['a'], [[1]]); return args.count"
    )
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["probe", "--count", "7"]) == 7


@pytest.mark.parametrize("words", [["serve", "--help"], ["run", "--help"]])
def test_output_has_escapes_for_characters_that_its_encoding_lacks(words: list[str]) -> None:
    shown = {
        encoding: subprocess.run(
            [sys.executable, "-m", "nnburst", *words],
            env={**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": "80"},
            capture_output=True,
            check=True,
            timeout=PATIENCE,
        ).stdout
        for encoding in ("ascii", "utf-8")
    }
    assert shown["ascii"].decode() == shown["utf-8"].decode().replace("…", "\\u2026")


def _all_parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for nested in action.choices.values():
                yield from _all_parsers(nested)


def test_help_of_every_command_fits_into_a_terminal_of_80_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    pages = {parser.prog: parser.format_help() for parser in _all_parsers(nnburst.cli.parser())}
    assert len(pages) > 30
    assert {
        prog: [line for line in text.splitlines() if len(line) > 80] for prog, text in pages.items()
    } == {prog: [] for prog in pages}


def test_help_of_serve_names_every_executor_and_what_json_has(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    words = " ".join(capsys.readouterr().out.split())
    assert all(f"{name}, " in words for name in BUILT_IN)
    assert "--json FILE write the driver's address, executor and pid" in words


def test_trace_without_a_file_names_its_three_forms(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "file.json"]) == 1
    error = capsys.readouterr().err
    assert "report FILE" in error
    assert "\\n" not in error
