"""A local server that speaks the hub's protocol: listing, resolve with etag, 302 to storage, ranges; and its faults."""

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class HubServer:
    """Repositories, each at one commit.

    Attributes:
        files: Content by path, of the first repository.
        repositories: Content by path, by repository and commit.
        faults: Called with (method, path) before each answer; returns a fault's name or ``None``.
        requests: How often each (method, kind) was asked; kinds are tree, resolve and storage.
        ranges: Every Range header asked with.
        waits: For the test to note how long the client wanted to wait.
        called: What it calls every file instead of by its SHA-256; ``None``: by that.
    """

    def __init__(self, repository: str, files: dict[str, bytes]) -> None:
        self.files = files
        self.repositories = {(repository, COMMIT): files}
        self.faults: Callable[[str, str], str | None] = lambda method, path: None
        self.requests: Counter[tuple[str, str]] = Counter()
        self.ranges: list[str] = []
        self.waits: list[float] = []
        self.called: str | None = None
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server.answer(self, "GET")

            def do_HEAD(self) -> None:
                server.answer(self, "HEAD")

            def log_message(self, *arguments: object) -> None:
                pass

        # The hub redirects to storage on another host; the client treats a redirect to its own host otherwise.
        self._servers = [ThreadingHTTPServer(("127.0.0.1", 0), Handler) for _ in range(2)]
        self.endpoint = f"http://127.0.0.1:{self._servers[0].server_port}"
        self._storage = f"http://localhost:{self._servers[1].server_port}"
        for http in self._servers:
            threading.Thread(target=http.serve_forever, daemon=True).start()

    def close(self) -> None:
        for http in self._servers:
            http.shutdown()
            http.server_close()

    def answer(self, handler: BaseHTTPRequestHandler, method: str) -> None:
        path = unquote(urlsplit(handler.path).path)
        kind = "tree" if "/tree/" in path else "resolve" if "/resolve/" in path else "storage"
        self.requests[method, kind] += 1
        fault = self.faults(method, path)
        if fault == "429":
            self.send(handler, 429, b"slow down", {"RateLimit": '"resolvers";r=0;t=1'})
        elif fault == "500":
            self.send(handler, 500, b"trouble")
        elif fault == "404":
            self.send(handler, 404, b"gone", {"X-Error-Code": "EntryNotFound"})
        elif fault == "gated":
            self.send(handler, 403, b"", {"X-Error-Code": "GatedRepo"})
        elif fault == "login":
            self.send(handler, 200, b"<html>Log in</html>", {"Content-Type": "text/html"})
        elif fault == "drop":
            handler.close_connection = True
            handler.connection.close()
        elif kind == "tree":
            self.tree(handler, path)
        elif kind == "resolve":
            self.resolve(handler, path)
        else:
            self.storage(handler, path, fault)

    def tree(self, handler: BaseHTTPRequestHandler, path: str) -> None:
        repository, _, rest = path.removeprefix("/api/").partition("/")[2].partition("/tree/")
        revision, _, folder = rest.partition("/")
        if (repository, revision) not in self.repositories:
            self.send(handler, 404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            return
        entries = [
            {
                "type": "file",
                "path": name,
                "size": len(content),
                "oid": hashlib.sha1(content).hexdigest(),
                "lfs": {"oid": sha256(content), "size": len(content), "pointerSize": 134},
            }
            for name, content in self.repositories[repository, revision].items()
            if name.startswith(folder + "/") or not folder
        ]
        if not entries:
            self.send(handler, 404, b"{}", {"X-Error-Code": "EntryNotFound"})
            return
        self.send(handler, 200, json.dumps(entries).encode(), {"Content-Type": "application/json"})

    def resolve(self, handler: BaseHTTPRequestHandler, path: str) -> None:
        place, _, rest = path.partition("/resolve/")
        repository = "/".join(place.split("/")[-2:])
        revision, _, name = rest.partition("/")
        files = self.repositories.get((repository, revision), {})
        if name not in files:
            self.send(handler, 404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": revision})
            return
        content = files[name]
        whole = name if files is self.files else f"{repository}/{revision}/{name}"
        linked = {"X-Linked-Etag": f'"{sha256(content)}"', "X-Linked-Size": str(len(content))}
        headers = {
            "X-Repo-Commit": revision,
            **(linked if self.called is None else {"X-Linked-Etag": f'"{self.called}"'}),
            "ETag": f'"{hashlib.sha1(content).hexdigest()}"',
            "Location": f"{self._storage}/storage/{whole}",
        }
        self.send(handler, 302, b"", headers)

    def storage(self, handler: BaseHTTPRequestHandler, path: str, fault: str | None) -> None:
        content = self._stored(path.removeprefix("/storage/"))
        if fault == "corrupt":
            content = bytes(reversed(content))
        first = 0
        if asked := handler.headers.get("Range"):
            self.ranges.append(asked)
            first = int(asked.removeprefix("bytes=").partition("-")[0])
        status = 206 if first else 200
        body = content[first:]
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.send_header("ETag", f'"{sha256(content)}"')
        if first:
            handler.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        handler.end_headers()
        if handler.command == "HEAD":
            return
        if fault == "truncate":
            handler.wfile.write(body[: len(body) // 2])
            handler.wfile.flush()
            handler.close_connection = True
            handler.connection.close()
            return
        handler.wfile.write(body)

    def _stored(self, path: str) -> bytes:
        if path in self.files:
            return self.files[path]
        owner, name, revision, file = path.split("/", 3)
        return self.repositories[f"{owner}/{name}", revision][file]

    @staticmethod
    def send(
        handler: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str] | None = None
    ) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
