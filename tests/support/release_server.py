"""A mirror of GitHub's releases on this machine, with archives as llama.cpp's release.yml packs them."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from tests.support.loopback import serving


@dataclass(kw_only=True)
class Releases:
    """Releases by their tags, and the archives of each; ``asked`` are the paths of all requests."""

    folder: Path
    url: str = ""
    archives: dict[str, list[Path]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    alter: Callable[[str, bytes], bytes] = lambda path, content: content

    def add(self, tag: str, name: str, files: Iterable[Path]) -> Path:
        """Add an archive ``llama-TAG-bin-NAME.tar.gz`` of these files to a release."""
        archive = self.folder / f"llama-{tag}-bin-{name}.tar.gz"
        with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
            for file in files:
                tar.add(file, f"llama-{tag}/{file.name}")
        self.archives.setdefault(tag, []).append(archive)
        return archive

    def answer(self, path: str) -> bytes | None:
        """Return what a path gives; None if there is nothing."""
        match path.strip("/").split("/"):
            case ["releases", "latest"]:
                return self._describe(max(self.archives, key=lambda tag: int(tag[1:])))
            case ["releases", "tags", tag] if tag in self.archives:
                return self._describe(tag)
            case ["download", name]:
                return (self.folder / name).read_bytes()
        return None

    def _describe(self, tag: str) -> bytes:
        assets = [
            {
                "name": archive.name,
                "size": archive.stat().st_size,
                "digest": f"sha256:{hashlib.sha256(archive.read_bytes()).hexdigest()}",
                "browser_download_url": f"{self.url}/download/{archive.name}",
            }
            for archive in self.archives[tag]
        ]
        return json.dumps({"tag_name": tag, "target_commitish": "master", "assets": assets}).encode()


class _Handler(BaseHTTPRequestHandler):
    releases: Releases

    def do_GET(self) -> None:
        """Answer."""
        self.releases.asked.append(self.path)
        content = self.releases.answer(self.path)
        if content is None:
            self.send_error(404)
            return
        content = self.releases.alter(self.path, content)
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def serve_releases(folder: Path) -> Iterator[Releases]:
    """Serve releases whose archives are kept in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    releases = Releases(folder=folder)
    with serving(_Handler, releases=releases) as releases.url:
        yield releases
