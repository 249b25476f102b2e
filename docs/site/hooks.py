"""Adjusts pages to the site.

Pages are written for viewers of the repository. In the site:

- a link to a file outside `docs/` becomes the path as code; a missing file fails the build;
- the line that links both languages goes, as the header has a language selector;
- headings of a translation also have the anchors of the original, for links from pages that exist
  in English only.
"""

import os
import re
from pathlib import Path

from mkdocs.exceptions import PluginError
from pymdownx.slugs import slugify

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
CHINESE = ".zh-CN.md"
LINK = re.compile(r"\[([^\]]*)\]\((\.\.?/[^)\s#]*)(#[^)\s]*)?\)")
LANGUAGES = re.compile(
    r"^(English \| \[简体中文\]|\[English\]\([^)]*\) \| 简体中文).*\n", re.MULTILINE
)
HEADING = re.compile(r"^(```.*?^```|#+ [^\n]*)$", re.MULTILINE | re.DOTALL)


def headings(text):
    """Matches of the headings of a page, without comments in code blocks."""
    return [match for match in HEADING.finditer(text) if match[0].startswith("#")]


def with_original_anchors(text, original):
    ids = [slugify(case="lower")(match[0].lstrip("# "), "-") for match in headings(original)]
    parts, end = [], 0
    for match, anchor in zip(headings(text), ids, strict=True):
        lines = [f'<a id="{anchor}"></a>', match[0]]
        # The title stays first: MkDocs names the page after it.
        parts += [text[end : match.start()], "\n\n".join(lines if end else lines[::-1])]
        end = match.end()
    return "".join(parts) + text[end:]


def on_page_markdown(markdown, page, **_):
    folder = (DOCS / page.file.src_uri).parent

    def as_code(match):
        target = Path(os.path.normpath(folder / match[2]))
        if target.is_relative_to(DOCS):
            return match[0]
        if not target.exists():
            raise PluginError(f"{page.file.src_uri}: link to a missing file: {match[2]}")
        path = target.relative_to(ROOT)
        return match[1] if match[1].strip("`") == str(path) else f"{match[1]} (`{path}`)"

    markdown = LANGUAGES.sub("", LINK.sub(as_code, markdown))
    source = page.file.abs_src_path
    if source and source.endswith(CHINESE):
        original = Path(source.removesuffix(CHINESE) + ".md").read_text()
        markdown = with_original_anchors(markdown, original)
    return markdown
