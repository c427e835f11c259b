"""Random models, written where they are measured, and beside what measures no time."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from ggufspec import proc
from gpu_check.presets import Model
from gpu_check.steps import NotRunError

_SCRIPTS = Path(__file__).parent.parent
_SPARE_BYTES = 2 << 30
_DIGEST = (  # a bench reads a model once for its digest: here, while something else is checked
    "import sys, time; from pathlib import Path; from ggufspec import digests; path = Path(sys.argv[1]); "
    "time.sleep(digests.unsettled_s(path)); digests.of_file(path)"
)


@dataclass(frozen=True, kw_only=True)
class Models:
    """A folder of random models, some of which are being written; ``children`` ends what still writes."""

    folder: Path
    children: ExitStack
    running: dict[str, psutil.Popen] = field(default_factory=dict)

    def path(self, model: Model) -> Path:
        """Return where a model is, or will be."""
        return self.folder / f"{model.name}.gguf"

    def begin(self, *models: Model) -> None:
        """Write these models in the background, one after the other, unless they are there or are written."""
        wanted = [each for each in models if not self.path(each).exists() and each.name not in self.running]
        if not wanted:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = [
            shlex.join([sys.executable, *map(str, words)])
            for model in wanted
            for words in (
                [_SCRIPTS / model.script, *self._words(model)],
                ["-c", _DIGEST, self.path(model)],
            )
        ]
        with (self.folder / f"{wanted[0].name}.log").open("wb") as log:
            argv = ["bash", "-ec", "\n".join(lines)]
            writer = self.children.enter_context(proc.spawn(argv, stdout=log, stderr=subprocess.STDOUT))
        self.running.update({each.name: writer for each in wanted})

    def write(self, *models: Model, seconds: float) -> list[Path]:
        """Return the models' files, when these and all that were begun with them are complete.

        Raises:
            NotRunError: the disk has no room for them.
            RuntimeError: they could not be written in so many seconds.
        """
        self.begin(*models)
        deadline = time.monotonic() + seconds
        for model in models:
            writer, path = self.running.get(model.name), self.path(model)
            while not path.exists() or (writer is not None and writer.poll() is None):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{path.name} was not written within {seconds:.0f} s")
                if writer is None or writer.poll() is not None:
                    raise self._failure(path)
                time.sleep(0.1)
        return [self.path(model) for model in models]

    def _words(self, model: Model) -> list[str]:
        target = [str(self.path(model.of))] if model.of is not None else []
        return [*target, *model.words, "-o", str(self.path(model))]

    def _failure(self, path: Path) -> Exception:
        said = "\n".join(log.read_text(errors="replace") for log in sorted(self.folder.glob("*.log")))
        free = shutil.disk_usage(self.folder).free
        if "GB are free" in said or free < _SPARE_BYTES:
            return NotRunError(f"there is no room for {path.name}: {free / 1e9:.1f} GB are free")
        return RuntimeError(f"{path.name} could not be written: {said.strip()[-300:]}")
