"""A local server that speaks the hub's protocol of uploads, for files that it takes as regular ones."""

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class UploadServer:
    """Takes commits to any data set.

    Attributes:
        files: Content by path, of the commits taken.
        commits: How many were taken.
        refuse: Whether it answers commits with 403.
        parents: The commit that each of those taken was to follow.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.commits = 0
        self.refuse = False
        self.parents: list[str | None] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path = urlsplit(self.path).path
                if "/tree/" in path:
                    self.answer(200, [_listed(*item) for item in server.files.items()])
                elif "/resolve/" in path:
                    self.send(server.files[path.partition(f"/resolve/{server.head}/")[2]])
                else:
                    self.answer(200, {"siblings": [], "id": "me/mask", "sha": server.head})

            do_HEAD = do_GET

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if "/preupload/" in self.path:
                    named = [file["path"] for file in json.loads(body)["files"]]
                    mode = {"uploadMode": "regular", "shouldIgnore": False, "oid": None}
                    self.answer(200, {"files": [{"path": path, **mode} for path in named]})
                elif "/commit/" in self.path and server.refuse:
                    self.answer(403, {"error": "you may not write here"})
                elif "/commit/" in self.path:
                    server.take(body)
                    self.answer(
                        200,
                        {
                            "commitUrl": f"{server.endpoint}/datasets/me/mask/commit/{server.head}",
                            "commitOid": server.head,
                            "success": True,
                        },
                    )
                else:
                    self.answer(200, {"url": f"{server.endpoint}/datasets/me/mask"})

            def answer(self, status: int, value: object) -> None:
                body = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(body)

            def send(self, content: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("ETag", f'"{_git_digest(content)}"')
                self.send_header("X-Repo-Commit", server.head)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def head(self) -> str:
        """The commit of what it holds."""
        held = sorted((path, _git_digest(content)) for path, content in self.files.items())
        return hashlib.sha1(repr(held).encode()).hexdigest()

    def take(self, body: bytes) -> None:
        self.commits += 1
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "header":
                self.parents.append(line["value"].get("parentCommit"))
            if line["key"] == "file":
                self.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _listed(path: str, content: bytes) -> dict[str, object]:
    return {"type": "file", "path": path, "size": len(content), "oid": _git_digest(content)}


def _git_digest(content: bytes) -> str:
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()
