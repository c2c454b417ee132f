"""Imports go one way: what each layer may use of the others, read from the source."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from source_trees import nodes, parsed, trees

SOURCE = Path(__file__).resolve().parent.parent / "src" / "nnburst"

_CONTROL: Final = {"hal", "fmq"}
_ENDS: Final = {*_CONTROL, "tracing", "compat", "serialize", "control"}
_DRIVER: Final = {*_ENDS, "executor", "importer", "_version"}
_RUNTIME: Final = {*_DRIVER, "client"}
_CAPI: Final = {"hal", "client", "runtime"}
_SERVING: Final = {*_ENDS, "client", "importer"}
_TESTING: Final = {*_RUNTIME, "driver", "runtime", "capi"}

#: Layers that each layer may import besides itself.
ALLOWED: Final[dict[str, set[str]]] = {
    "_version": set(),
    "hal": set(),
    "tracing": {"hal", "fmq", "formats"},
    "compat": {"hal"},
    "fmq": {"hal"},
    "serialize": {"hal"},
    "formats": {"hal"},
    "executor": {"hal", "formats", "tracing"},
    "importer": {"hal", "formats"},
    "demo": {"hal", "formats", "importer"},
    "control": _CONTROL,
    "client": _ENDS,
    "driver": _DRIVER,
    "runtime": _RUNTIME,
    "capi": _CAPI,
    "onnxruntime": {"capi", "hal"},
    "litert": {"capi", "hal"},
    "serving": {*_SERVING, "_version"},
    "testing": {*_TESTING, "__init__", "formats"},
    "bench": {*_TESTING, "__init__", "testing", "demo"},
    "ray": {*_SERVING, "serving"},
    "cli": {"serving", "onnxruntime", "litert", *_TESTING, "__init__", "testing", "bench", "demo"},
    # The package itself only re-exports, and starts the command line.
    "__init__": {"_version", "hal", "client", "runtime", "importer"},
    "__main__": {"cli"},
}

#: The C module is for those who move packets: the hostile client of the tests, too, and the
#: benchmark, whose floor and whose queues are measured from C to C; and for who answers C programs.
NATIVE_USERS: Final = (
    "tracing",
    "capi/marshalling",
    "capi/entry",
    "capi/native_executions",
    "capi/cached_requests",
    "capi/handlers",
    "fmq",
    "control/connection",
    "control/death_word",
    "client",
    "driver",
    "executor/litert/native",
    "executor/onnxruntime/native",
    "executor/openvino",
    "executor/null",
    "executor/c_library",
    "executor/c_structs",
    "bench",
    "testing/raw_peer",
)

#: Distributions that each layer may import; the four of the core are allowed everywhere.
CORE_DISTRIBUTIONS: Final = {"numpy", "cffi", "msgspec", "posix_ipc"}
EXTRA_DISTRIBUTIONS: Final = {
    "cli/top": {"prometheus_client"},
    "cli": {"rich", "matplotlib", "zmq", "ai_edge_litert", "graphviz", "PIL"},
    "executor/litert": {"ai_edge_litert"},
    "serving": {"grpc", "grpc_health", "tritonclient", "google", "aiohttp"},
    "ray": {"ray", "grpc", "tritonclient"},
    "serving/metrics": {"prometheus_client"},
    "serving/server": {"grpc_reflection"},
    "serving/spans": {"opentelemetry"},
    "testing": {"pytest", "hypothesis"},
    "bench": {"matplotlib", "zmq", "cloudtoid_interprocess", "kickmsg", "iceoryx2", "faster_fifo"},
    "bench/model": {"PIL"},
    "bench/verdict": {"scipy"},
    "testing/models/network_file": {"PIL"},
    "demo": {"PIL", "pymicro_features"},
}


@cache
def modules() -> tuple[str, ...]:
    """Every module of the package, as a path below it without suffix."""
    return tuple(
        sorted(str(path.relative_to(SOURCE).with_suffix("")) for path in SOURCE.rglob("*.py"))
    )


@cache
def imports(module: str) -> tuple[str, ...]:
    """The imports that `found_imports` finds, read once."""
    return tuple(found_imports(module))


def found_imports(module: str) -> Iterator[str]:
    """Dotted names that `module` imports, wherever in it; `from a import b` counts as a.b.

    `import nnburst` alone loads nothing; each name that is then taken from it counts.
    """
    for node in nodes(parsed(SOURCE / f"{module}.py")):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name != "nnburst")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and not node.attr.startswith("__"):
            is_ours = isinstance(node.value, ast.Name) and node.value.id == "nnburst"
            yield from [f"nnburst.{node.attr}"] if is_ours else []


def layer(path: str) -> str:
    """The layer of a module path or of a dotted name below nnburst."""
    return path.replace(".", "/").split("/")[0]


def layers_imported(module: str) -> set[str]:
    """Layers that `module` imports besides its own; the package's own names count as `__init__`."""
    known = {*ALLOWED, "_native"}
    names = [name.split(".")[1:] for name in imports(module) if layer(name) == "nnburst"]
    layers = {parts[0] if parts and parts[0] in known else "__init__" for parts in names}
    return layers - {layer(module), "_native"}


def is_within(module: str, places: tuple[str, ...]) -> bool:
    return any(module == place or module.startswith(f"{place}/") for place in places)


def test_every_folder_is_a_known_layer() -> None:
    assert {layer(module) for module in modules()} <= ALLOWED.keys()


def test_module_imports_only_layers_below() -> None:
    upward = {module: layers_imported(module) - ALLOWED[layer(module)] for module in modules()}
    assert {module: layers for module, layers in upward.items() if layers} == {}


def test_native_module_is_used_only_where_packets_move() -> None:
    users = [m for m in modules() if any(name.startswith("nnburst._native") for name in imports(m))]
    assert [module for module in users if not is_within(module, NATIVE_USERS)] == []


def test_module_imports_only_declared_distributions() -> None:
    undeclared = {m: distributions(m) - allowed_distributions(m) for m in modules()}
    assert {module: names for module, names in undeclared.items() if names} == {}


def distributions(module: str) -> set[str]:
    return {layer(name) for name in imports(module)}


def allowed_distributions(module: str) -> set[str]:
    allowed = {"nnburst", *CORE_DISTRIBUTIONS, *sys.stdlib_module_names}
    for place, extra in EXTRA_DISTRIBUTIONS.items():
        if is_within(module, (place,)):
            allowed |= extra
    return allowed


def test_no_layer_may_reach_itself_through_others() -> None:
    reachable = {name: set(below) for name, below in ALLOWED.items()}
    for _ in ALLOWED:
        for below in reachable.values():
            below |= {further for name in below for further in reachable[name]}
    assert [name for name, below in reachable.items() if name in below] == []


def test_client_and_driver_never_import_each_other() -> None:
    assert "driver" not in ALLOWED["client"]
    assert "client" not in ALLOWED["driver"]


@cache
def known_modules() -> frozenset[str]:
    return frozenset(modules())


@cache
def module_imports(module: str) -> set[str]:
    """The modules of this package that `module` imports, as paths; itself not among them."""
    known = known_modules()
    found = set()
    for name in imports(module):
        path = name.removeprefix("nnburst.").replace(".", "/")
        for candidate in (path, f"{path}/__init__", path.rpartition("/")[0]):
            if name.startswith("nnburst.") and candidate in known:
                found.add(candidate)
                break
    return found - {module}


def test_driver_validates_without_a_kernel_or_an_engine() -> None:
    listing = "import sys, nnburst.driver.service.worker; print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", listing], capture_output=True, text=True, check=True
    )
    loaded = ran.stdout.split()
    assert "nnburst.executor.operations.convolution" in loaded
    engines = tuple(
        f"nnburst.executor.{name}" for name in ("reference", "litert", "onnxruntime", "openvino")
    )
    assert [name for name in loaded if name.startswith(engines)] == []


def test_declarations_and_engines_take_nothing_from_the_reference_executor() -> None:
    below = (
        "executor/graph/",
        "executor/operations/",
        "executor/litert/",
        "executor/onnxruntime/",
        "executor/openvino",
    )
    takes = {
        module: [other for other in module_imports(module) if "executor/reference" in other]
        for module in modules()
        if module.startswith(below)
    }
    assert takes
    assert {module: others for module, others in takes.items() if others} == {}


def room(module: str) -> str:
    """The folder below its layer that a module lies in; the module itself if it lies in none."""
    parts = module.split("/")
    return "/".join(parts[:2]) if len(parts) > 2 else module


def a_cycle(graph: dict[str, set[str]]) -> list[str]:
    """One cycle of a graph; empty if there is no cycle."""
    try:
        tuple(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        cycle: list[str] = error.args[1]
        return cycle
    return []


def test_modules_import_each_other_in_no_circle() -> None:
    assert a_cycle({module: module_imports(module) for module in modules()}) == []


def test_rooms_of_a_layer_import_each_other_in_no_circle() -> None:
    rooms: dict[str, set[str]] = {}
    for module in modules():
        if not module.endswith("__init__"):  # a package's own names come from its rooms
            below = {room(other) for other in module_imports(module)} - {room(module)}
            rooms.setdefault(room(module), set()).update(below)
    assert a_cycle(rooms) == []


def test_c_files_include_each_other_in_no_circle() -> None:
    graph: dict[str, set[str]] = {}
    for path in sorted((SOURCE.parents[1] / "csrc").rglob("*.[ch]")):
        if "tests" not in path.parts:
            included = set(re.findall(r'#include "(?:.*/)?(\w+)\.h"', path.read_text()))
            graph.setdefault(path.stem, set()).update(included - {path.stem})
    assert a_cycle(graph) == []


def test_no_module_imports_a_sibling_for_type_checking_alone() -> None:
    found = []
    for module in modules():
        if module.endswith("__init__"):
            continue  # a package names what it loads lazily
        blocks = [n for n in nodes(parsed(SOURCE / f"{module}.py")) if isinstance(n, ast.If)]
        for block in (
            b for b in blocks if isinstance(b.test, ast.Name) and b.test.id == "TYPE_CHECKING"
        ):
            names = [n.module or "" for n in ast.walk(block) if isinstance(n, ast.ImportFrom)]
            same = f"nnburst.{layer(module)}"
            found += [
                (module, name) for name in names if name == same or name.startswith(f"{same}.")
            ]
    assert found == []


def decodes(node: ast.AST) -> bool:
    """Whether a node is a call for which msgspec looks at a type."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    name = node.func.attr
    return (
        name == "Decoder"
        # which takes its type by position, too
        or (name == "convert" and ast.unparse(node.func.value) == "msgspec")
        or (name in ("decode", "convert") and any(word.arg == "type" for word in node.keywords))
    )


def test_decoders_are_made_with_their_modules() -> None:
    """Two threads that have msgspec look at a type for the first time can crash the process."""
    made_late = [
        f"{path.relative_to(SOURCE)}:{call.lineno}"
        for path, tree in trees(SOURCE).items()
        if any(map(decodes, nodes(tree)))  # few do; nodes of functions within functions come often
        for function in nodes(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and decodes(call)
    ]
    assert made_late == []


#: Private names of other packages, which look like ours.
_FOREIGN_NAMES: Final = {"_fields", "_state", "_tab"}


def private_names(tree: ast.Module) -> tuple[set[str], set[str]]:
    """Underscored names that a module defines, and those that it takes from other objects or modules."""
    defined, taken = set(), set()
    for node in nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            defined.add(node.id)
        elif isinstance(node, ast.Attribute):
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            (defined if own else taken).add(node.attr)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nnburst"):
            taken |= {alias.name for alias in node.names if node.module != "nnburst"}
    return (
        {name for name in defined if re.match("_[a-z]", name)},
        {name for name in taken if re.match("_[a-z]", name)} - _FOREIGN_NAMES,
    )


def test_no_layer_uses_private_names_of_another() -> None:
    names = {path: private_names(tree) for path, tree in trees(SOURCE).items()}
    by_layer: dict[str, set[str]] = {}
    for path, (defined, _) in names.items():
        by_layer.setdefault(path.relative_to(SOURCE).parts[0], set()).update(defined)
    everywhere = set().union(*by_layer.values())
    found = {
        f"{path.relative_to(SOURCE)}: {name}"
        for path, (_, taken) in names.items()
        for name in (taken & everywhere) - by_layer[path.relative_to(SOURCE).parts[0]]
    }
    assert found == set()
