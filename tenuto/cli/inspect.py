"""`tenuto inspect`: a page of trained agents, written to a file or shown at once."""

import functools
import http.server
import webbrowser
from pathlib import Path

from tenuto.cli.commands import Inspect
from tenuto.cli.train import refuse_imports
from tenuto.console import say
from tenuto.runs import folders


def inspect(command: Inspect, words: list[str]) -> None:
    from tenuto.pages import inspector  # SciPy takes long to import

    for folder in command.dirs:
        if not command.trust:
            refuse_imports(folders.load_job(folder), folder)
    inspector.write(command.dirs, command.out, command.lanes)
    if command.serve:
        serve(command.out)
    else:
        say(f"Written to {command.out}: open it in a browser, it needs no network")


def serve(page: Path) -> None:
    """Show the page in a browser, until Ctrl-C."""
    with server_of(page) as server:
        address = f"http://127.0.0.1:{server.server_port}/"
        say(f"{page} is shown at {address} until Ctrl-C; only this machine can reach it")
        webbrowser.open(address)
        server.serve_forever()


def server_of(page: Path) -> http.server.ThreadingHTTPServer:
    """A server of this page alone, at a free port of this machine."""
    return http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(OnePage, page.read_bytes()))


class OnePage(http.server.BaseHTTPRequestHandler):
    """Answers with the page, whatever is asked for, and with nothing else of this machine."""

    def __init__(self, page: bytes, *args: object):
        self._page = page
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/" else 404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        body = self._page if self.path == "/" else b""
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of requests."""
