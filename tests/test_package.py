"""What the source archive and the wheel hold, and what a page on PyPI would show."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = {
    str(path.relative_to(ROOT / "src"))
    for path in (ROOT / "src" / "podsrl").rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
}


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive, and the wheel that is built from it; nothing is downloaded."""
    for package in ("build", "hatchling", "hatch_fancy_pypi_readme"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return folder


@pytest.fixture(scope="module")
def installed(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an environment where `pip install podsrl` took it from an index; its other packages are ours."""
    folder = tmp_path_factory.mktemp("user")
    project = folder / "simple" / "podsrl"
    shutil.copytree(archives, project)
    links = [f'<a href="{file.name}">{file.name}</a>' for file in archives.iterdir()]
    (project / "index.html").write_text("\n".join(links))
    venv.create(folder / "venv")
    pip = [sys.executable, "-m", "pip", "--isolated", "--python", str(folder / "venv" / "bin" / "python")]
    install = ["install", "--quiet", "--no-deps", "--index-url", project.parent.as_uri(), "podsrl"]
    subprocess.run([*pip, *install], check=True, timeout=300)
    [packages] = (folder / "venv").glob("lib/python*/site-packages")
    (packages / "ours.pth").write_text(sysconfig.get_path("purelib"))  # whose own .pth files are not read
    return folder


@pytest.fixture(scope="module")
def wheel(archives: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(next(archives.glob("*.whl")))


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    [name] = [name for name in wheel.namelist() if name.endswith("/METADATA")]
    return message_from_string(wheel.read(name).decode())


def test_the_wheel_holds_the_source_with_its_data_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == SOURCE
    needed = {
        "py.typed",
        "compare/systems.json",
        "models/arithmetic/model.safetensors",
        "config/recipes/paper/a-pods.toml",
    }
    assert {f"podsrl/{name}" for name in needed} <= held
    assert any(name.endswith("/licenses/LICENSE") for name in wheel.namelist())


def test_the_source_archive_has_what_its_tests_and_pages_need(archives: Path) -> None:
    with tarfile.open(next(archives.glob("*.tar.gz"))) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in SOURCE} <= held
    pages = [*ROOT.glob("*.md"), ROOT / "CITATION.cff", *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*")]
    others = {"mkdocs.yml", "Makefile", "constraints.txt", "tests/test_package.py", "benchmarks/__init__.py"}
    assert {str(path.relative_to(ROOT)) for path in pages if path.is_file()} | others <= held


def test_the_page_on_pypi_has_no_link_that_leads_nowhere(metadata: Message) -> None:
    text = metadata.get_payload()
    assert metadata["Description-Content-Type"] == "text/markdown"
    targets = re.findall(r"\]\(([^)]*)\)", re.sub(r"(?ms)^```.*?^```", "", text))
    assert targets and all(target.startswith("https://") for target in targets)
    assert not re.search("<!--|<picture|<img", text) and "## Install" in text and "docs/" in text


def test_the_metadata_name_what_an_index_asks_for(metadata: Message) -> None:
    assert metadata["Requires-Python"] == ">=3.11" and metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Summary"] and metadata["Keywords"] and metadata.get_all("Project-URL")
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])


def test_who_cites_the_library_cites_the_version_that_is_installed(metadata: Message) -> None:
    cited = dict(re.findall(r"(?m)^(version|license): (.*)$", (ROOT / "CITATION.cff").read_text()))
    assert cited == {"version": metadata["Version"], "license": metadata["License-Expression"]}
    said = f"Version {cited['version']} · Linux · Python {metadata['Requires-Python'].removeprefix('>=')} or newer · "
    assert said + cited["license"].replace("-", " ") in (ROOT / "README.md").read_text().splitlines()[2]


SHORT = ["--rollouts.num_prompts=2", "--rollouts.num_rollouts=8", "--select.num_kept=4"]


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["pods", "--version"], "0.1.0"),
        (["pods", "--help"], "check-reward"),
        (["pods", "recipes"], "pods train gsm8k"),
        (["pods", "train", "pods", "--dry-run", *SHORT], "builtin:arithmetic"),
        (["python", "-c", "import podsrl; print(podsrl.__file__)"], "user0/venv/lib/"),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, list) else None,
)
def test_what_pip_installs_from_an_index_works_outside_the_checkout(
    installed: Path, command: list[str], shown: str
) -> None:
    program = installed / "venv" / "bin" / command[0]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [program, *command[1:]], cwd=installed, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0 and shown in done.stdout, done.stdout + done.stderr


def test_the_address_for_issues_stands_in_one_file(archives: Path, metadata: Message) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    address = project["urls"]["Issues"]
    assert f"Issues, {address}" in metadata.get_all("Project-URL", [])
    with tarfile.open(next(archives.glob("*.tar.gz"))) as archive:
        files = {one.name: archive.extractfile(one) for one in archive if one.isfile()}
        holders = [name for name, file in files.items() if file and address.encode() in file.read()]
    assert {Path(name).name for name in holders} == {"pyproject.toml", "PKG-INFO"}  # which is made of it


def test_twine_finds_nothing_to_say(archives: Path) -> None:
    pytest.importorskip("twine")
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, archives.iterdir())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
