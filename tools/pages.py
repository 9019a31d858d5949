"""Let MkDocs make a site of all pages of the checkout, with diagrams drawn and nothing loaded from elsewhere.

``nox -s docs`` makes it in build/site: MkDocs calls these functions, since mkdocs.yml names this file in its hooks.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("*.md", "docs/*.md", "[!.]*/README.md", "prototxt/*/README.md", "tools/*/README.md")
LINK = re.compile(r"\]\(([^)#:]+)[^):]*\)")
REMOTE = re.compile(
    r"<(?:script|img|iframe|link(?=[^>]*stylesheet|[^>]*icon|[^>]*pre))[^>]*[\"'=](?:https?:)?//[^>]*>"
    r"|url\(\s*[\"']?(?:https?:)?//[^)]*\)"
    r"|@import[^;]*(?:https?:)?//[^;]*"
    r"|class=[\"'][^\"']*\bmermaid\b[^\"']*[\"']"  # for which the theme loads Mermaid
)


def on_config(config: MkDocsConfig) -> None:
    """Draw diagrams here."""
    fence = {"name": "mermaid", "class": "diagram", "format": diagram}
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [fence]}


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Take all pages of the checkout, in their folders, and the files that they link to, instead of those of docs/."""
    from mkdocs.structure.files import File

    for file in [*files]:
        if file.src_dir == config.docs_dir:
            files.remove(file)
    for path in (*pages(), *linked()):
        files.append(File(path.relative_to(ROOT).as_posix(), str(ROOT), config.site_dir, config.use_directory_urls))


def on_post_build(config: MkDocsConfig) -> None:
    """Raise PluginError if a page loads something from elsewhere."""
    from mkdocs.exceptions import PluginError

    for path in sorted(Path(config.site_dir).rglob("*")):
        if path.suffix in (".html", ".css") and (remote := REMOTE.search(path.read_text())):
            raise PluginError(f"{path}: a page is to load nothing from elsewhere: {remote[0]}")


def diagram(source: str, *_: Any, **__: Any) -> str:
    """Return a diagram of Mermaid as SVG. A mistake in it ends the build."""
    import mermaidx

    return f'<div class="diagram">{mermaidx.render(source).svg()}</div>'


def pages() -> list[Path]:
    """Return all pages of the checkout."""
    return sorted({path for pattern in PAGES for path in ROOT.glob(pattern)})


def linked() -> list[Path]:
    """Return the files that pages link to and that are none."""
    paths = {(page.parent / link).resolve() for page in pages() for link in LINK.findall(page.read_text())}
    return sorted(path for path in paths if path.is_file() and path.suffix != ".md")
