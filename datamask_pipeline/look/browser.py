"""The browser over documents: pages made on the server, for one record, read-only. Knows listings; knows no SQL.

No script, no form that changes anything, no address but its own: see ``html``. Only GET and HEAD are answered, and only
where the request names this host, so that no other site can have a name of its own point here.
"""

import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from datamask_pipeline import duck
from datamask_pipeline.compliance.purged import purged_lines, purged_story
from datamask_pipeline.errors import ConfigurationError, DataMaskError, UnknownDocumentError
from datamask_pipeline.look.document import document_page, find_document
from datamask_pipeline.look.html import policy, rendered
from datamask_pipeline.look.listing import STAGES, Listing, Query
from datamask_pipeline.look.page import page
from datamask_pipeline.look.selected import selected
from datamask_pipeline.storage import Store

if TYPE_CHECKING:
    import duckdb
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Queries at a time; each may take a database's memory.
_AT_A_TIME: Final = 2
_FIELDS: Final = ("stage", "release", "arm", "view", "crawl", "domain", "language", "reason", "text")

View = Callable[[Request, "duckdb.DuckDBPyConnection"], str]


def browser(store: Store, hosts: Sequence[str]) -> Starlette:
    """The application.

    Args:
        store: The record.
        hosts: Names under which a request may ask for this host, without a port.
    """
    pages = _Pages(store)
    views = {
        "/": pages.start,
        "/documents": pages.documents,
        "/document": pages.document,
        "/find": pages.find,
        "/page": pages.page,
    }
    return Starlette(
        routes=[Route(path, pages.answering(view), methods=["GET"]) for path, view in views.items()],
        middleware=[
            Middleware(_Headers),
            Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False),
        ],
        exception_handlers={404: _not_found},
    )


class _Headers:
    """What keeps a browser from running, keeping or telling anything of a page."""

    def __init__(self, app: "ASGIApp") -> None:
        self.app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        async def with_headers(message: "Message") -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(
                    {
                        "Content-Security-Policy": policy(forms=True, header=True),
                        "X-Content-Type-Options": "nosniff",
                        "X-Frame-Options": "DENY",
                        "Referrer-Policy": "no-referrer",
                        "Cross-Origin-Opener-Policy": "same-origin",
                        "Cross-Origin-Resource-Policy": "same-origin",
                        "Cache-Control": "no-store",
                    }
                )
            await send(message)

        await self.app(scope, receive, with_headers)


class _Pages:
    """What each address shows."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._at_work = threading.BoundedSemaphore(_AT_A_TIME)
        self._drawing = threading.Lock()  # settings of plots are one process's

    def answering(self, view: View) -> Callable[[Request], HTMLResponse]:
        """A view with a database of its own; what the record refuses becomes a page of one sentence."""

        def answer(request: Request) -> HTMLResponse:
            try:
                with (
                    self._at_work,
                    tempfile.TemporaryDirectory() as scratch,
                    duck.connect(self.store, Path(scratch), memory_limit="1GB") as connection,
                ):
                    return HTMLResponse(view(request, connection))
            except UnknownDocumentError as error:
                return _refused(str(error), 404)
            except DataMaskError as error:
                return _refused(str(error), 400)

        return answer

    def start(self, _: Request, __: "duckdb.DuckDBPyConnection") -> str:
        arms = []
        for key in self.store.keys("select"):
            about = selected(self.store, *key.split("/", 1))
            counts = about.manifest["counts"]
            of = {"release": about.release, "arm": about.arm}
            arms.append({**of, "kept": counts["kept"], "rows": about.selection.rows, "links": _links(of)})
            arms[-1]["stale"] = about.stale
        crawls = [
            {"name": key, "documents": self._rows("ingest", key), "rejected": self._rows("rejected", key)}
            for key in self.store.keys("ingest")
        ]
        for crawl in crawls:
            for stage in ("crawl", "rejected"):
                crawl[f"link_{stage}"] = _address("/documents", {"stage": stage, "crawl": crawl["name"]})
        return _page("start.html", arms=arms, crawls=crawls, root=self.store.root_url)

    def documents(self, request: Request, connection: "duckdb.DuckDBPyConnection") -> str:
        query = _query(request.query_params)
        listing = Listing(self.store, query)
        found = listing.page(connection)
        of = {"release": query.release, "arm": listing.about.arm} if listing.about is not None else {}
        for row in found.rows:
            crawl, number = listing.rows.place(row["position"])
            row["link"] = _address("/document", {"crawl": crawl, "row": number, **of})
        asked = {name: getattr(query, name) for name in _FIELDS} | {"seed": query.seed}
        further = asked | {"after": f"{found.after[0]!r},{found.after[1]}"} if found.after else None
        return _page(
            "documents.html",
            query=query,
            page=found,
            views=STAGES[query.stage],
            stages=list(STAGES),
            crawls=list(listing.rows.refs),
            total=listing.rows.total,
            keys=self.store.keys("select"),
            further=_address("/documents", further) if further else None,
            first=_address("/documents", asked) if query.after is not None else None,
        )

    def document(self, request: Request, connection: "duckdb.DuckDBPyConnection") -> str:
        asked = request.query_params
        about = None
        if asked.get("release"):
            about = selected(self.store, asked["release"], asked.get("arm") or None)
        found = document_page(
            self.store, about, asked.get("crawl", ""), _whole(asked.get("row"), "row"), connection
        )
        of = {} if about is None else {"release": about.release, "arm": about.arm}
        for near in found.neighbours:
            near["link"] = _address("/document", {"crawl": near["crawl"], "row": near["row"], **of})
        if found.representative is not None:
            by = found.representative
            by["link"] = _address("/document", {"crawl": by["crawl"], "row": by["row"], **of})
        return _page("document.html", found=found, about=about)

    def find(self, request: Request, connection: "duckdb.DuckDBPyConnection") -> str:
        name = request.query_params.get("id", "")
        keys = self.store.keys("select")
        found = []
        for crawl, row in find_document(self.store, name, connection):
            links = {key: dict(zip(("release", "arm"), key.split("/", 1), strict=True)) for key in keys}
            addresses = {
                key: _address("/document", {"crawl": crawl, "row": row, **of}) for key, of in links.items()
            }
            found.append({"crawl": crawl, "row": row, "links": addresses})
            found[-1]["alone"] = _address("/document", {"crawl": crawl, "row": row})
        gone = [] if found else purged_lines(purged_story(self.store, name))
        return _page("found.html", name=name, found=found, gone=list(gone))

    def page(self, request: Request, _: "duckdb.DuckDBPyConnection") -> str:
        asked = request.query_params
        with self._drawing:
            return page(selected(self.store, asked.get("release", ""), asked.get("arm") or None))

    def _rows(self, stage: str, key: str) -> int:
        ref = self.store.current(stage, key)
        return 0 if ref is None else ref.rows


def _links(of: Mapping[str, str]) -> dict[str, str]:
    """Where an arm's selection and its views are shown."""
    views = {view: {"stage": "selection", "view": view} for view in STAGES["selection"] if view != "all"}
    named = {view: _address("/documents", {**of, **asked}) for view, asked in views.items()}
    return {
        "page": _address("/page", of),
        **named,
        "a sample": _address("/documents", {**of, "stage": "selection", "seed": 0}),
        "left out of the pool": _address("/documents", {**of, "stage": "pool", "view": "dropped"}),
    }


def _query(asked: Mapping[str, str]) -> Query:
    """What the address asks for.

    Raises:
        ConfigurationError: a value is no number, or no place in a listing.
    """
    named = {name: asked[name] for name in _FIELDS if asked.get(name)}
    if of := asked.get("of"):  # the form's one choice of release and arm
        named["release"], _, named["arm"] = of.partition("/")
    after = None
    if place := asked.get("after"):
        try:
            value, position = place.split(",")
            after = (float(value), int(position))
        except ValueError:
            raise ConfigurationError(
                f"after={place!r} is no place in a listing: begin with its first page"
            ) from None
    seed = _whole(asked["seed"], "seed") if asked.get("seed") else None
    return Query(**named, seed=seed, after=after)


def _whole(value: str | None, name: str) -> int:
    """A whole number from 0 on.

    Raises:
        ConfigurationError: it is none.
    """
    if value is None or not (value.isascii() and value.isdigit() and len(value) < 16):
        raise ConfigurationError(f"{name}={value!r} is no whole number from 0 on")
    return int(value)


def _address(path: str, asked: Mapping[str, Any]) -> str:
    return f"{path}?{urlencode({name: value for name, value in asked.items() if value not in ('', None)})}"


def _page(template: str, **values: Any) -> str:
    return rendered(template, meta_policy=policy(forms=True), **values)


def _refused(problem: str, status: int) -> HTMLResponse:
    return HTMLResponse(_page("refused.html", problem=problem), status)


def _not_found(request: Request, _: Exception) -> HTMLResponse:
    return _refused(f"there is no page {request.url.path!r}; the first page is /", 404)
