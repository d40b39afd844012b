"""A hook of mkdocs: what pages link to outside of docs/ (results, scripts, sources) is part of the site.

Links in docs/ are relative to the repository, so that they work where the files are read as they are. The site has no
repository beside it: each linked file is copied into it, and its links are turned there. A link to a file that does not
exist is left alone, and `mkdocs build --strict` fails on it.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, InclusionLevel

OUTSIDE = re.compile(r"\]\((?:\.\./)+([^)#\s]+)")  # a link of a page in docs/ that leads out of it
ROOT = Path(__file__).parent.parent


def on_files(files: Any, config: Any) -> Any:
    """Add every file that a page of docs/ links to and that lies outside."""
    texts = [file.content_string for file in files.documentation_pages()]
    for name in sorted({name for text in texts for name in OUTSIDE.findall(text)}):
        if (ROOT / name).is_file() and name not in files.src_uris:
            path = str(ROOT / name)
            files.append(File.generated(config, name, abs_src_path=path, inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links out of docs/ to the copies within the site."""

    def inside(link: re.Match[str]) -> str:
        return f"]({posixpath.relpath(link[1], posixpath.dirname(page.file.src_uri) or '.')}"

    return OUTSIDE.sub(lambda link: inside(link) if link[1] in files.src_uris else link[0], markdown)
