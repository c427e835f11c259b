"""The core of the mission: llama.cpp's own programs, one fresh process per run."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from ggufspec import proc
from ggufspec.domain import Program, RunSpec, Sample, Status
from ggufspec.engines.engine import Engine, Measurement
from ggufspec.engines.failures import explain
from ggufspec.errors import ChildCrashedError, LogError
from ggufspec.llama.command import commands
from ggufspec.llama.install import Install, program_environment
from ggufspec.llama.logs import parsing

_LONGEST_BOS = 32  # characters: two line breaks, "<|begin_of_text|>", a space
_END_OF_TEXT = " [end of text]"  # the plain programs write it behind a finished text


@dataclass(frozen=True, kw_only=True)
class BinaryEngine(Engine):
    """Runs ``main``/``llama-completion`` for one model alone, and a drafting program for the pair."""

    install: Install
    name: str = "binary"
    drafting_program: Program = Program.TREE
    timeout_s: float | None = None

    def argv(self, spec: RunSpec) -> tuple[str, ...]:
        """Return the command of one run, as it can be pasted into a shell."""
        return commands.argv(spec, self.install, program=self._program(spec))

    def measure(self, spec: RunSpec, log: Path) -> Measurement:
        """Run once in an empty folder, with nothing of the user's llama.cpp settings in sight."""
        program = self._program(spec)
        out, err = log.with_suffix(".out"), log.with_suffix(".err")
        with tempfile.TemporaryDirectory(prefix="ggufspec-") as name:
            scratch = Path(name)
            prompt_file = None
            if commands.needs_file(spec.prompt.text):
                prompt_file = scratch / "prompt.txt"
                prompt_file.write_bytes(f"{spec.prompt.text}\n".encode())
            argv = commands.argv(spec, self.install, program=program, prompt_file=prompt_file)
            try:
                completed = proc.run(
                    argv,
                    stdout=out,
                    stderr=err,
                    env=program_environment(scratch),
                    cwd=scratch,
                    timeout_s=self.timeout_s,
                )
            except ChildCrashedError as failure:
                sample = Sample(status=Status.FAILED, program=program)
                return Measurement(sample=sample, argv=argv, wall_s=0.0, error=failure.message)
        sample = _read(out, err, program)
        status, error = judge_run(completed, sample, err)
        text = generated_text(out.read_bytes().decode(errors="replace"), spec.prompt.text)
        return Measurement(
            sample=replace(sample, status=status, text=text if status is Status.OK else None),
            argv=argv,
            wall_s=completed.wall_s,
            peak_rss_bytes=completed.peak_rss_bytes,
            error=error,
        )

    def _program(self, spec: RunSpec) -> Program:
        return Program.PLAIN if spec.drafting is None else self.drafting_program


def _read(out: Path, err: Path, program: Program) -> Sample:
    """Parse what llama.cpp logged; where nothing was, the sample has a status and no numbers."""
    try:
        return parsing.parse(err.read_bytes(), program=program)
    except LogError:
        return Sample(status=Status.SUMMARY_LOST, program=program)


def judge_run(completed: proc.Completed, sample: Sample, err: Path) -> tuple[Status, str | None]:
    """Decide how a run ended from what the system and the log say; return the status and the reason."""
    if completed.timed_out:
        return Status.TIMED_OUT, f"killed after {completed.wall_s:.0f} s"
    if completed.returncode == 0:
        return sample.status, None if sample.status is Status.OK else sample.status.value
    return explain(completed.returncode, err.read_bytes())


def generated_text(stdout: str, prompt: str) -> str:
    """Return what was generated, without the prompt that drafting programs echo before it (b3761 on).

    An echo stands behind a BOS at most; further on, the model itself has repeated its prompt.
    """
    before, echoed, rest = stdout.partition(prompt)
    text = rest if echoed and len(before) <= _LONGEST_BOS else stdout
    return text.rstrip("\n").removesuffix(_END_OF_TEXT)
