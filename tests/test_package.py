import importlib.metadata
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import grimp
import pytest
from tests.support.rows import rows

import mcp_toolset

pytestmark = pytest.mark.needs("*")


ROOT = Path(__file__).resolve().parent.parent
REGISTRY_HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("files", "pythonhosted", "org"),
        ("registry", "npmjs", "org"),
        ("registry", "yarnpkg", "com"),
        ("index", "crates", "io"),
        ("proxy", "golang", "org"),
    )
]


def run(*arguments: str) -> str:
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def repository_files() -> list[Path]:
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def pins(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / name).read_text()
    return dict(re.findall(r"^([a-z0-9][a-z0-9.-]*)==(\S+)", text, re.MULTILINE))


def test_version_is_that_of_the_installed_distribution():
    assert importlib.metadata.version("mcp-toolset") == mcp_toolset.__version__


def test_every_package_that_is_imported_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = [*project["dependencies"], *sum(project["optional-dependencies"].values(), [])]
    # pydantic pins its core, and requires what type checkers read a default of a type parameter by;
    # pydantic-monty is the name of its two parts together.
    of_pydantic = {"pydantic-core", "pydantic-monty-client", "typing-extensions"}
    declared = {normal(re.split(r"[^\w.-]", text)[0]) for text in required} | of_pydantic
    owners = importlib.metadata.packages_distributions()
    # `_typeshed` is the type checkers' own.
    foreign = imported_packages() - {"mcp_toolset", "_typeshed", *sys.stdlib_module_names}
    assert {name for name in foreign if not declared & set(map(normal, owners[name]))} == set()


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imported_packages() -> set[str]:
    graph = grimp.build_graph("mcp_toolset", include_external_packages=True, cache_dir=None)
    # pytest imports this module, and nothing else does.
    graph.remove_module("mcp_toolset.serving.pytest_plugin")
    if not graph.find_modules_that_directly_import("pytest"):
        graph.remove_module("pytest")
    return {module.split(".")[0] for module in graph.modules}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_wheel_carries_the_type_marker_and_the_command(wheel: dict[str, bytes]):
    entry_points = next(text for name, text in wheel.items() if name.endswith("entry_points.txt")).decode()
    assert "mcp_toolset/py.typed" in wheel
    assert "mcp-toolset = mcp_toolset.cli.main:main" in entry_points


def test_e10_the_wheel_has_the_package_and_its_licenses_and_nothing_else(wheel: dict[str, bytes]):
    licenses = [name.rpartition("/licenses/")[2] for name in wheel if "/licenses/" in name]
    vectors = "src/mcp_toolset/catalog/search/word_vectors"
    assert sorted(licenses) == ["LICENSE", f"{vectors}/LICENSE-all-MiniLM-L6-v2", f"{vectors}/NOTICE"]
    kinds = {Path(name).suffix for name in wheel if name.startswith("mcp_toolset/")}
    assert kinds == {".py", ".typed", ".json", ".bin", ".txt"}
    assert {name.split("/")[0].split("-")[0] for name in wheel} == {"mcp_toolset"}


def test_e10_the_metadata_are_complete(wheel: dict[str, bytes]):
    told = next(text for name, text in wheel.items() if name.endswith(".dist-info/METADATA")).decode()
    for line in (
        "License-Expression: Apache-2.0",
        "Author: The mcp-toolset maintainers",
        "Requires-Python: >=3.11",
        "Classifier: Typing :: Typed",
        "Description-Content-Type: text/markdown",
        *(f"Classifier: Programming Language :: Python :: 3.{minor}" for minor in range(11, 15)),
        *(
            f"Provides-Extra: {extra}"
            for extra in (
                "code",
                "embeddings",
                "fast",
                "keyring",
                "model",
                "otel",
                "postgres",
                "prometheus",
                "redis",
            )
        ),
    ):
        assert f"\n{line}\n" in told


@rows("larger", ["dev.txt", "bench.txt"])
def test_larger_requirement_sets_pin_what_the_smaller_pins(larger: str):
    smaller = pins("run.txt" if larger == "dev.txt" else "dev.txt")
    assert smaller
    assert smaller.items() <= pins(larger).items()


def test_no_file_carries_the_address_of_a_package_registry():
    files = repository_files()
    assert Path(__file__).resolve() in files
    found = [
        f"{path.relative_to(ROOT)}: {host}"
        for path in files
        for host in REGISTRY_HOSTS
        if host.encode() in path.read_bytes()
    ]
    assert found == []
