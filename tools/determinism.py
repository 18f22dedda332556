"""Finds what would make two runs of one simulation seed differ, in the code that the simulator runs.

That code gets time, chance, files and connections only through the ports it is handed. So it must not
import `time` and its like, must not use the parts of asyncio that keep real time or walk over sets, and
must not depend on memory addresses: neither by `id` and `hash` nor by the order of a set. Code in `core`
is plainer still: nothing in it waits at all.

What the checker sees is what stands in the file: a set that comes out of a call is not recognised.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "varlog"

SIMULATED = (
    "core",
    "storage",
    "node",
    "repository",
    "client",
    "metadata/election.py",
    "transport/calls.py",
    "transport/deadlines.py",
    "transport/errors.py",
    "transport/parts.py",
    "transport/peer.py",
    "transport/pool.py",
    "transport/request.py",
    "transport/service.py",
    "runtime/give_way.py",
    "runtime/scope.py",
    "runtime/timeout.py",
)
"""What runs in the simulator, relative to the package."""

PURE = ("core",)
"""What may not wait either."""

EXCEPTIONS: dict[tuple[str, str], str] = {}
"""(file relative to the package, rule) -> why it is right there. One that is no longer needed is an error."""

FORBIDDEN_MODULES = {
    "concurrent": "work off the loop belongs to the ports",
    "glob": "files only through the Disk port",
    "multiprocessing": "work off the loop belongs to the ports",
    "os": "files only through the Disk port",
    "pathlib": "files only through the Disk port",
    "queue": "work off the loop belongs to the ports",
    "random": "chance only through the Random handed in; import `Random` alone, for its type",
    "secrets": "chance only through the Random handed in",
    "select": "connections only through the Network port",
    "selectors": "connections only through the Network port",
    "shutil": "files only through the Disk port",
    "signal": "signals belong to the command line",
    "socket": "connections only through the Network port",
    "subprocess": "processes belong to the command line",
    "tempfile": "files only through the Disk port",
    "threading": "work off the loop belongs to the ports",
    "time": "time only through the Clock port",
    "uuid": "chance only through the Random handed in",
}

FORBIDDEN_ASYNCIO = {
    "all_tasks": "returns a set",
    "as_completed": "walks over a set",
    "open_connection": "connections only through the Network port",
    "run": "the loop is the caller's",
    "sleep": "time only through the Clock port",
    "start_server": "connections only through the Network port",
    "TaskGroup": "keeps its tasks in a set; use runtime.scope.Scope",
    "timeout": "time only through the Clock port; use runtime.timeout",
    "timeout_at": "time only through the Clock port; use runtime.timeout",
    "to_thread": "work off the loop belongs to the ports",
    "wait": "returns sets",
    "wait_for": "time only through the Clock port; use runtime.timeout",
}

FORBIDDEN_LOOP = ("call_at", "call_later", "run_in_executor", "time")
"""Of an event loop. The same names on a Clock are right."""

FORBIDDEN_NOW = ("now", "today", "utcnow")
"""Of `date` and `datetime`."""

ORDER_TAKERS = ("dict.fromkeys", "enumerate", "filter", "iter", "list", "map", "reversed", "tuple", "zip")
"""Calls whose result has the order of what they are given. (`sorted`, `len`, `min`, `max` do not care.)"""

SET_METHODS = ("difference", "intersection", "symmetric_difference", "union")
SET_OPERATORS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Sub)
SET_TYPES = ("AbstractSet", "MutableSet", "Set", "frozenset", "set")


@dataclass(frozen=True, order=True)
class Finding:
    """One place that could make two runs differ."""

    path: str
    line: int
    rule: str
    """What an exception names."""
    reason: str

    def __str__(self) -> str:
        return f"src/varlog/{self.path}:{self.line}: {self.rule}: {self.reason}"


def dotted(node: ast.expr) -> str:
    """`a.b.c` as text, or the empty string for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def is_loop(node: ast.expr) -> bool:
    """Whether an expression is, by its looks, an event loop."""
    if isinstance(node, ast.Call):
        return dotted(node.func).endswith(("get_running_loop", "get_event_loop"))
    return "loop" in dotted(node).rpartition(".")[2]


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Everything inside a module or function but what is inside the functions it holds."""
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from own_nodes(child)


class Sets:
    """Which expressions of a file are sets, as far as the file itself tells.

    A plain name is one in the function that makes or annotates it; `self.waiting: set[int]` anywhere
    makes every `self.waiting` of the file one.
    """

    def __init__(self, tree: ast.Module) -> None:
        self._scopes: list[list[str]] = []
        attributes = [name for name in self._declared(ast.walk(tree)) if "." in name]
        self._scopes.append(attributes)
        self.enter(tree)

    def enter(self, scope: ast.AST) -> None:
        """The walk has come to a module or function."""
        self._scopes.append([])
        self._scopes[-1] = list(self._declared(own_nodes(scope)))

    def leave(self) -> None:
        self._scopes.pop()

    def _declared(self, nodes: Iterator[ast.AST]) -> Iterator[str]:
        for node in nodes:
            if isinstance(node, ast.AnnAssign) and self._is_set_type(node.annotation):
                yield dotted(node.target)
            elif isinstance(node, ast.arg) and node.annotation is not None and self._is_set_type(node.annotation):
                yield node.arg
            elif isinstance(node, ast.Assign) and self.is_set(node.value):
                yield from map(dotted, node.targets)

    def _is_set_type(self, annotation: ast.expr) -> bool:
        if isinstance(annotation, ast.BinOp):
            return self._is_set_type(annotation.left) or self._is_set_type(annotation.right)
        if isinstance(annotation, ast.Subscript):
            annotation = annotation.value
        return dotted(annotation).rpartition(".")[2] in SET_TYPES

    def is_set(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Set | ast.SetComp):
            return True
        if isinstance(node, ast.Call):
            return self._is_set_call(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, SET_OPERATORS):
            return any(self.is_set(side) or self._is_key_view(side) for side in (node.left, node.right))
        if isinstance(node, ast.IfExp):
            return self.is_set(node.body) or self.is_set(node.orelse)
        return bool(name := dotted(node)) and any(name in scope for scope in self._scopes)

    def _is_set_call(self, node: ast.Call) -> bool:
        if dotted(node.func) in ("set", "frozenset"):
            return True
        return isinstance(node.func, ast.Attribute) and node.func.attr in SET_METHODS and self.is_set(node.func.value)

    def _is_key_view(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "keys"


class Checker(ast.NodeVisitor):
    """Walks one file and collects what it finds."""

    def __init__(self, path: str, tree: ast.Module, *, pure: bool) -> None:
        self.findings: list[Finding] = []
        self._path = path
        self._pure = pure
        self._sets = Sets(tree)
        self.visit(tree)

    def _found(self, node: ast.AST, rule: str, reason: str) -> None:
        self.findings.append(Finding(self._path, getattr(node, "lineno", 0), rule, reason))

    # ------------------------------------------------------------ imports

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._check_module(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        names = [alias.name for alias in node.names]
        if module == "random" and names == ["Random"]:
            return
        self._check_module(node, module)
        if module == "asyncio":
            for name in names:
                self._check_asyncio(node, name)

    def _check_module(self, node: ast.stmt, module: str) -> None:
        top = module.partition(".")[0]
        if top in FORBIDDEN_MODULES:
            self._found(node, f"import {top}", FORBIDDEN_MODULES[top])
        if self._pure and top == "asyncio":
            self._found(node, "import asyncio", "core code never waits")

    # ------------------------------------------------------------ names and calls

    def visit_Attribute(self, node: ast.Attribute) -> None:
        base = dotted(node.value)
        if base == "asyncio":
            self._check_asyncio(node, node.attr)
        elif node.attr in FORBIDDEN_LOOP and is_loop(node.value):
            self._found(node, f"loop.{node.attr}", "time only through the Clock port, threads not at all")
        elif node.attr in FORBIDDEN_NOW and base.rpartition(".")[2] in ("date", "datetime"):
            self._found(node, f"datetime.{node.attr}", "time only through the Clock port")
        self.generic_visit(node)

    def _check_asyncio(self, node: ast.AST, name: str) -> None:
        if name in FORBIDDEN_ASYNCIO:
            self._found(node, f"asyncio.{name}", FORBIDDEN_ASYNCIO[name])

    def visit_Call(self, node: ast.Call) -> None:
        name = dotted(node.func)
        if name in ("hash", "id"):
            self._found(node, f"{name}()", "memory addresses and hash seeds differ from run to run")
        elif name == "open":
            self._found(node, "open()", "files only through the Disk port")
        elif name in ORDER_TAKERS or self._is_join(node.func):
            for argument in node.args:
                self._check_order(argument)
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "pop" and self._sets.is_set(node.func.value):
            self._check_order(node.func.value)
        self.generic_visit(node)

    def _is_join(self, function: ast.expr) -> bool:
        return isinstance(function, ast.Attribute) and function.attr == "join"

    # ------------------------------------------------------------ order of sets

    def visit_For(self, node: ast.For) -> None:
        self._check_order(node.iter)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self._check_order(node.iter)
        self.generic_visit(node)

    def visit_Starred(self, node: ast.Starred) -> None:
        if isinstance(node.ctx, ast.Load):
            self._check_order(node.value)
        self.generic_visit(node)

    def visit_YieldFrom(self, node: ast.YieldFrom) -> None:
        self._check_order(node.value)
        self.generic_visit(node)

    def _check_order(self, node: ast.expr) -> None:
        if self._sets.is_set(node):
            self._found(node, "order of a set", "it follows memory addresses; use a dict, a list, or sorted()")

    # ------------------------------------------------------------ scopes, and waiting in pure code

    def visit(self, node: ast.AST) -> None:
        if self._pure and isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            self._found(node, "async", "core code never waits")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            self._sets.enter(node)
            super().visit(node)
            self._sets.leave()
        else:
            super().visit(node)


def check_source(path: str, source: str, *, pure: bool = False) -> list[Finding]:
    """All findings in one file, exceptions not yet taken off."""
    return sorted(Checker(path, ast.parse(source, path), pure=pure).findings)


def simulated_files() -> Iterator[tuple[str, bool]]:
    """Paths relative to the package, each with whether it must be pure."""
    for room in SIMULATED:
        place = PACKAGE / room
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            yield file.relative_to(PACKAGE).as_posix(), room in PURE


def check_package() -> tuple[list[Finding], list[str], int]:
    """Findings, what is listed for nothing, and the number of files looked at."""
    findings: list[Finding] = []
    unused = dict(EXCEPTIONS)
    gone = [
        f"{room}: there is no such file or folder; was it renamed?"
        for room in SIMULATED
        if not (PACKAGE / room).exists()
    ]
    files = [entry for entry in simulated_files() if (PACKAGE / entry[0]).exists()]
    for path, pure in files:
        for finding in check_source(path, (PACKAGE / path).read_text(encoding="utf-8"), pure=pure):
            if (path, finding.rule) in EXCEPTIONS:
                unused.pop((path, finding.rule), None)
            else:
                findings.append(finding)
    return (
        findings,
        [*gone, *(f"{path}: the exception for {rule} excuses nothing; remove it" for path, rule in unused)],
        len(files),
    )


def main() -> None:
    findings, unused, count = check_package()
    for line in (*findings, *unused):
        print(line)
    if findings or unused:
        sys.exit("determinism: see above; what is right all the same goes into EXCEPTIONS with its reason")
    print(f"determinism: {count} files, nothing found")


if __name__ == "__main__":
    main()
