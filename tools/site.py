"""A hook of MkDocs for links that lead out of docs/, as to a source file.

They lead to `repo_url` of mkdocs.yml if it is set; else the path is shown in place of the link.
"""

import re
from typing import Any

LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+)([A-Za-z.][^)]*)\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Rewrite the links of one page that lead above docs/."""
    depth = page.file.src_uri.count("/")

    def rewritten(link: re.Match[str]) -> str:
        text, ups, path = link.groups()
        if ups.count("../") <= depth:
            return link[0]
        return f"[{text}]({config.repo_url}/blob/main/{path})" if config.repo_url else f"`{path}`"

    return LINK.sub(rewritten, markdown)
