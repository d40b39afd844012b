"""The layers of the package: a module imports only from its own layer and those below, and never in a circle.

Imports inside of functions count, too; those for type checkers alone do not, for they never run. The package's front
(`tenuto/__init__.py`) is in no layer: it names what is public and imports it when it is asked for.
"""

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = (  # from the ground up; modules of one layer may import one another
    "errors extras files types spaces",
    "td nets own schedules bandit recorded hold scales",
    "actions extensions",
    "agents plan replay",
    "envs",
    "loop learning diagnostics",
    "settings",
    "trainers",
    "runs",
    "policy export numpy_policy play episodes insight report console wrappers sb3 engines",
    "api checks experiments sweeps",
    "pages",
    "cli",
)
LEVELS = {name: level for level, names in enumerate(LAYERS) for name in names.split()}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): ast.parse(path.read_text()) for path in (ROOT / "tenuto").rglob("*.py")}


def imported(tree: ast.Module) -> set[str]:
    """The modules of the package that are imported anywhere in this source. None is imported relatively."""
    found, nodes = set(), [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        nodes += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in MODULES}
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (inside & MODULES.keys()) or {node.module}
    return found


def level(module: str) -> int:
    return LEVELS[module.split(".")[1]]


MEMBERS = sorted(MODULES.keys() - {"tenuto"})
IMPORTS = {module: imported(MODULES[module]) - {"tenuto"} for module in MEMBERS}


def packages_of(module: str) -> set[str]:
    """The packages whose own code runs when the module is imported."""
    parts = module.split(".")
    return {".".join(parts[:i]) for i in range(2, len(parts))}


def test_every_module_has_a_layer():
    assert {module.split(".")[1] for module in MEMBERS} <= LEVELS.keys()


def test_nothing_is_imported_relatively():
    for module, tree in MODULES.items():
        assert not any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree)), module


@pytest.mark.parametrize("module", MEMBERS)
def test_a_module_imports_from_its_own_layer_and_those_below(module: str):
    assert {other for other in IMPORTS[module] if level(other) > level(module)} == set()


def test_no_module_imports_itself_by_way_of_others():
    """To import a module runs its packages too, but for those that the importing module is in: they run already."""
    ways = {
        module: set().union(*({other, *packages_of(other)} for other in others)) - packages_of(module) - {module}
        for module, others in IMPORTS.items()
    }
    try:
        TopologicalSorter(ways).prepare()
    except CycleError as problem:
        pytest.fail(" -> ".join(reversed(problem.args[1])))


CORE = ("tenuto.loop", "tenuto.agents", "tenuto.trainers.compiled", "tenuto.envs.chain")


def test_the_core_needs_no_gymnasium():
    """A module that is None in `sys.modules` cannot be imported: `import gymnasium` raises an ImportError."""
    lines = ["import sys", "sys.modules['gymnasium'] = None", *(f"import {module}" for module in CORE)]
    made = subprocess.run([sys.executable, "-c", "\n".join(lines)], cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr


def test_a_command_imports_no_drawing_libraries_before_it_draws():
    """They would take longer to import than all of tenuto, before the first number is told."""
    lines = ["import sys", "import tenuto.cli.train", "print({'matplotlib', 'scipy'} & set(sys.modules))"]
    made = subprocess.run([sys.executable, "-c", "\n".join(lines)], cwd=ROOT, capture_output=True, text=True)
    assert made.stdout.strip() == "set()", made.stderr
