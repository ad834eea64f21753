"""Builds the documentation as a site: pip install '.[docs]', then python docs/site/build_site.py FOLDER.

The pages of the repository are staged where they are in the repository, so their links hold; next to them
come pages that are made from the code (`docs/site/generated_pages.py`). Every warning of Sphinx is an error.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import generated_pages

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "benchmarks" / "README.md",
]
LINK = re.compile(r"(?:\]\(|(?:src|srcset)=\")([^)#\":]+)")
PARTS = {  # part of the menu → its pages, in order; `index` lists every page once more
    "Use it": "faq glossary pytorch onnx serving command-line deploy fleet expressions schedule-language "
    "shapes gradients decks coming-from-tvm gpu",
    "Look inside": "architecture tuning-log report ask-why verify numerics security measured",
    "Extend it": "extend add-an-operator add-a-model add-a-sketch-rule add-a-primitive add-a-target",
}


def menu(pages: list[str]) -> str:
    """The tables of contents, as MyST: written pages by part, then the generated ones."""
    parts = {part: [f"docs/{name}" for name in names.split()] for part, names in PARTS.items()}
    listed = {page for names in parts.values() for page in names}
    parts["Reference"] = [p for p in pages if p not in listed and p != "README"]
    blocks = (
        f"```{{toctree}}\n:hidden:\n:caption: {part}\n\n" + "\n".join(names) + "\n```"
        for part, names in parts.items()
    )
    return "\n\n" + "\n\n".join(blocks) + "\n"


def stage(folder: Path) -> None:
    """Write what Sphinx reads: pages, whatever they link to, generated pages."""
    pages = [*PAGES, *sorted((ROOT / "docs").glob("*.md"))]
    texts = {page.relative_to(ROOT).as_posix(): page.read_text() for page in pages}
    texts |= {f"docs/{name}.md": text for name, text in generated_pages.pages(ROOT).items()}
    menu_of_all = menu([name.removesuffix(".md") for name in texts])
    for file in _linked(pages):
        name = file.relative_to(ROOT).as_posix()
        if file.suffix == ".md":
            texts[name] = "---\norphan: true\n---\n" + file.read_text()  # read by its link, not in the menu
        else:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, folder / name)
    texts["README.md"] += menu_of_all
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def _linked(pages: list[Path]) -> list[Path]:
    """Files that pages link to, and those that these link to, without the pages themselves."""
    reached, waiting = set(pages), list(pages)
    while waiting:
        page = waiting.pop()
        for link in LINK.findall(page.read_text()):
            file = (page.parent / link).resolve()
            if file.is_file() and file not in reached:
                reached.add(file)
                waiting += [file] if file.suffix == ".md" else []
    return sorted(reached - set(pages))


def main(out: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        stage(Path(folder))
        sphinx = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
        done = subprocess.run([*sphinx, "-c", str(Path(__file__).parent), folder, out], check=False)
    # README's picture is HTML, which Sphinx leaves as it is, and whose files it does not copy.
    shutil.copytree(ROOT / "docs" / "pictures", Path(out, "docs", "pictures"), dirs_exist_ok=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
