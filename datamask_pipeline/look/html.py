"""HTML out of templates: escaped, with a policy that allows no script and no address. Knows no record.

Text of documents, names and addresses are data: Jinja escapes them, ``inert`` shows what would turn a line round, and the
policy forbids the browser to run or fetch anything, should both fail.
"""

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from datamask_pipeline.duck import ROW_NUMBERS
from datamask_pipeline.printable import inert

#: Line ends and tabs of a text are shown as they are.
_OF_TEXTS: Final = "\n\t"


def rendered(template: str, **values: Any) -> str:
    """A page.

    Args:
        template: Name of a file in ``templates``.
        values: What it shows.
    """
    return _environment().get_template(template).render(**values, style=Markup(_style()))


@cache
def policy(*, forms: bool = False, header: bool = False) -> str:
    """The content policy: pictures in the page itself, the one style sheet by its digest, nothing else.

    Args:
        forms: Of pages whose forms lead to their own server.
        header: Where it is sent with a page; the one in a page cannot forbid framing.
    """
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    rules = ["default-src 'none'", "img-src data:", f"style-src 'sha256-{digest}'", "base-uri 'none'"]
    rules.append("form-action 'self'" if forms else "form-action 'none'")
    return "; ".join([*rules, "frame-ancestors 'none'"] if header else rules)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("datamask_pipeline.look"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters |= {
        "text": lambda value: Markup.escape(inert(value, keep=_OF_TEXTS)),
        "number": number,
        "stored": stored,
    }
    return environment


@cache
def _style() -> str:
    return files("datamask_pipeline.look").joinpath("templates/style.css").read_text(encoding="utf-8")


def _shown(value: Any) -> Any:
    """What a template prints: all text inert, markup of ours as it is."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else inert(value)


def number(value: Any) -> str:
    """A number with thousands apart, or four places that say something; nothing known is a dash."""
    if value is None or value != value:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.4f}" if value == 0 or abs(value) >= 0.001 else f"{value:.3g}"


def stored(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the record without what only queries need."""
    return {name: value for name, value in row.items() if name not in ROW_NUMBERS}
