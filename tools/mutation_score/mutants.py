"""Every small change of a module that its tests should notice.

Left alone, because no behaviour depends on them: texts, docstrings, annotations, messages of exceptions,
log lines, assertions, decorators, `__repr__` and `__str__`, and what only type checkers read.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

#: What each operator may wrongly have been: the other side of its boundary, and its opposite.
_COMPARISONS: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
_OPPOSITES: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SILENT_FIELDS: Final = {"annotation", "returns", "decorator_list", "bases"}
_SILENT_FUNCTIONS: Final = {"__repr__", "__str__"}
_LOGS: Final = {"log", "_log", "logger", "_logger", "logging", "warnings"}


@dataclass(frozen=True)
class Mutant:
    """A module with one change.

    Attributes:
        module: path of the module below the package, with suffix.
        line: where the change is, counted from 1.
        last_line: where the changed expression or statement ends.
        before: what stood there.
        after: what stands there now; empty if it was removed.
        source: the whole module, changed.
        in_function: whether the change is in the body of a function, so that importing does not run it.
    """

    module: str
    line: int
    last_line: int
    before: str
    after: str
    source: str
    in_function: bool

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.before} -> {self.after or '(removed)'}"


def mutants(module: str, source: str) -> Iterator[Mutant]:
    """All changes of a module, in the order of its text.

    Args:
        module: its name in what is reported.
        source: its text.
    """
    tree = ast.parse(source)
    for place in _places(tree):
        node = place.get()
        for other in _others(node, place):
            before, after = _short(node), _short(other)
            place.set(other)
            changed = ast.unparse(ast.fix_missing_locations(tree))
            place.set(node)
            line = getattr(node, "lineno", 1)
            last_line = getattr(node, "end_lineno", None) or line
            in_function = place.bound is not None
            yield Mutant(module, line, last_line, before, after, changed, in_function)


@dataclass(frozen=True)
class _Place:
    """Where a node hangs in the tree.

    `bound` is what was assigned before it in its function; None outside of functions.
    """

    parent: ast.AST
    field: str
    index: int | None
    bound: frozenset[str] | None

    def get(self) -> ast.AST:
        value = getattr(self.parent, self.field)
        node = value if self.index is None else value[self.index]
        assert isinstance(node, ast.AST)
        return node

    def set(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def _places(parent: ast.AST, bound: set[str] | None = None) -> Iterator[_Place]:
    for field, value in ast.iter_fields(parent):
        if field in _SILENT_FIELDS or (isinstance(parent, ast.ClassDef) and field == "keywords"):
            continue
        within = bound
        if isinstance(parent, _FUNCTIONS) and field == "body":
            within = set()
        nodes = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        for index, node in nodes:
            if not isinstance(node, ast.AST) or _is_silent(node):
                continue
            yield _Place(parent, field, index, None if within is None else frozenset(within))
            yield from _places(node, within)
            if (
                within is not None
                and isinstance(node, ast.Name)
                and isinstance(node.ctx, ast.Store)
            ):
                within.add(node.id)


def _is_silent(node: ast.AST) -> bool:
    """Whether nothing that a test should notice happens below."""
    match node:
        case ast.JoinedStr() | ast.Assert() | ast.Import() | ast.ImportFrom():
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.FunctionDef(name=name) if name in _SILENT_FUNCTIONS:
            return True
        case ast.FunctionDef(decorator_list=[*_, ast.Name(id="overload" | "abstractmethod")]):
            return True
        case ast.ClassDef(bases=bases) if any(ast.unparse(base) == "Protocol" for base in bases):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__" | "__slots__")]):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name))) if name in _LOGS:
            return True
        case ast.Call(func=ast.Name(id="cast" | "TypeVar" | "NewType")):
            return True
    return False


def _others(node: ast.AST, place: _Place) -> Iterator[ast.AST]:
    """The nodes that may stand in the place of `node`, by one mistake."""
    if isinstance(node, ast.stmt):
        yield from _other_statements(node, place)
    elif isinstance(node, ast.expr):
        yield from _other_expressions(node)
        yield from _other_conditions(node, place)
    elif isinstance(node, ast.comprehension):
        for n in range(len(node.ifs)):
            ifs = node.ifs[:n] + node.ifs[n + 1 :]
            yield ast.comprehension(node.target, node.iter, ifs, node.is_async)
    elif isinstance(node, ast.ExceptHandler) and not isinstance(node.body[0], ast.Raise):
        yield ast.ExceptHandler(node.type, node.name, [ast.Raise()])


def _other_statements(node: ast.stmt, place: _Place) -> Iterator[ast.AST]:
    match node:
        case ast.Raise() | ast.Delete() | ast.Return(value=None):
            yield ast.Pass()
        case ast.Expr(value=ast.Call() as call) if not _is_silent(call):
            yield ast.Pass()
        case ast.Expr(value=ast.Await()):
            yield ast.Pass()
        case ast.Return(value=value) if not _is_constant(value):
            yield ast.Return(ast.Constant(None))
        case ast.AugAssign(op=op):
            yield ast.Pass()
            if type(op) in _ARITHMETIC:
                yield ast.AugAssign(node.target, _ARITHMETIC[type(op)](), node.value)
        case ast.Assign(targets=[target]) if _is_reassigned(target, place):
            yield ast.Pass()
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()


def _is_reassigned(target: ast.expr, place: _Place) -> bool:
    """Whether the program means something without this assignment, though the wrong thing."""
    if isinstance(target, ast.Name):
        return place.bound is not None and target.id in place.bound
    return isinstance(target, ast.Attribute | ast.Subscript)


def _is_constant(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool))


def _other_expressions(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
            yield ast.Constant(value - 1)
        case ast.Compare(ops=ops):
            for n, op in enumerate(ops):
                for other in _COMPARISONS[type(op)]:
                    changed = [*ops[:n], other(), *ops[n + 1 :]]
                    yield ast.Compare(node.left, changed, node.comparators)
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
            for n in range(len(values)):
                rest = values[:n] + values[n + 1 :]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(op, rest)
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
            yield operand
        case ast.BinOp(op=op) if type(op) in _ARITHMETIC and not _joins(node):
            yield ast.BinOp(node.left, _ARITHMETIC[type(op)](), node.right)
        case ast.Call(func=ast.Name(id=name), args=args) if name in _OPPOSITES:
            yield ast.Call(ast.Name(_OPPOSITES[name]), args, node.keywords)
            if name in ("min", "max") and len(args) == 2:
                yield from args


def _joins(node: ast.BinOp) -> bool:
    """Whether this joins texts or types, rather than numbers."""
    sides = (node.left, node.right)
    if isinstance(node.op, ast.BitOr):
        return any(_is_type(side) for side in sides)
    return any(
        isinstance(side, ast.JoinedStr)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in sides
    )


def _is_type(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_type(node.left) or _is_type(node.right)
    name = ast.unparse(node).rpartition(".")[2].partition("[")[0]
    return name == "None" or hasattr(builtins, name) or (name[:1].isupper() and not name.isupper())


def _other_conditions(node: ast.expr, place: _Place) -> Iterator[ast.expr]:
    """A condition that is always or never met; a loop that never ends shows nothing new."""
    if place.field != "test" or isinstance(node, ast.Constant):
        return
    if isinstance(place.parent, ast.If | ast.IfExp):
        yield ast.Constant(True)
    yield ast.Constant(False)


def _short(node: ast.AST) -> str:
    if isinstance(node, ast.Pass):
        return ""
    text = " ".join(ast.unparse(ast.fix_missing_locations(node)).split())
    return text if len(text) <= 80 else f"{text[:77]}..."
