"""Model references as users write them: a text becomes a Reference, without network access."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from ggufspec import paths
from ggufspec.domain import ModelFile, Pair
from ggufspec.errors import BadReferenceError
from ggufspec.modelfiles.catalog import is_inside, is_repo
from ggufspec.modelfiles.gguf import models_in
from ggufspec.redaction import redact

HUB_HOSTS = frozenset({"huggingface.co", "www.huggingface.co", "hf.co"})

_HALVES = {"target": "target", "draft": "draft", "drafter": "draft"}
_FORMS = (
    "user/repo:QUANT, user/repo/file.gguf, hf://…, a Hub URL, PAIR:target, PAIR:drafter, a local path or "
    "FOLDER:QUANT"
)


@dataclass(frozen=True, kw_only=True)
class Reference:
    """One model as the user named it: a local path, or a repository with a file, a quant, or neither.

    ``text`` is what was typed, without credentials.
    """

    text: str
    repo: str | None = None
    filename: str | None = None
    quant: str | None = None
    revision: str | None = None
    path: Path | None = None  # with a quant: of a folder
    use_default: bool = True  # of a repository alone, take the quant that llama.cpp takes


def parse_reference(text: str, pairs: Mapping[str, Pair], *, endpoint: str | None = None) -> Reference:
    """Return the reference that a text stands for.

    A file that exists here, or a folder of models, wins over a repository of the same name, as the shell
    completes paths. The name of a GGUF file in a folder that exists here is a path, too, as is one below a
    single folder: no repository is called ``models/big.gguf``.

    Args:
        text: ``user/repo:QUANT`` (as llama.cpp's -hf, also behind ``hf.co/``), ``user/repo/file.gguf``,
            ``hf://…``, a Hub URL with ``/resolve/`` or ``/blob/``, one model of a pair
            (``demo:target``), a local path, or a folder of models with a quant (``~/models:Q4_K_M``).
        pairs: the catalogue, for models of pairs.
        endpoint: another Hub whose URLs are also accepted.

    Raises:
        BadReferenceError: the text has none of these forms.
        GgufspecError: it is in the home folder of a user who does not exist.
    """
    if text.startswith("hf://"):
        return _repository(redact(text), text.removeprefix("hf://").removeprefix("models/"))
    host, _, rest = text.partition("/")
    if host in HUB_HOSTS and rest:  # as Ollama names them
        return _repository(text, rest)
    if re.match(r"https?://", text):
        return _url(text, endpoint)
    path = paths.expanded(text, "model")
    folder, _, quant = text.rpartition(":")
    if quant and not _is_file(path) and ("/" in folder or folder.startswith("~")):
        in_folder = paths.expanded(folder, "model")
        if models_in(in_folder):
            return Reference(text=text, path=in_folder, quant=quant)
    if _is_file(path) or text.startswith(("/", "./", "../", "~")) or ("/" in text and models_in(path)):
        return Reference(text=text, path=path)
    name, _, half = text.rpartition(":")
    if name in pairs and half in _HALVES:
        model = getattr(pairs[name], _HALVES[half])
        if model is None:
            raise BadReferenceError(
                f"the pair {name!r} has no drafter", "its drafting method needs no second model"
            )
        return of_model(model, text)
    if text.endswith(".gguf") and (text.count("/") == 1 or ("/" in text and path.parent.is_dir())):
        return Reference(text=text, path=path)
    if "/" in text:
        return _repository(text, text)
    if text in pairs:
        raise BadReferenceError(
            f"{text!r} is a pair, not one model",
            f"write {text}:target or {text}:drafter; where a command has --pair, --pair {text} names both",
        )
    if text.endswith(".gguf"):
        return Reference(text=text, path=path)
    raise BadReferenceError(f"not a model reference: {text!r}", f"write {_FORMS}")


def names_model(text: str) -> bool:
    """Whether a text is meant as a model reference: names of pairs have no slash and no colon."""
    return "/" in text or ":" in text or text.endswith(".gguf")


def of_model(model: ModelFile, text: str | None = None) -> Reference:
    """Return the reference to exactly this model."""
    if model.repo is None:
        return Reference(text=text or str(model.path or model.filename), path=model.path)
    return Reference(
        text=text or model.reference, repo=model.repo, filename=model.filename, revision=model.revision
    )


def _repository(text: str, rest: str) -> Reference:
    """``user/repo``, then ``@revision``, ``/file`` and ``:QUANT``, each or none."""
    owner, _, rest = rest.partition("/")
    head, slash, filename = rest.partition("/")
    quant = None
    if not slash:
        head, colon, quant_text = head.partition(":")
        quant = quant_text if colon else None
    name, at, revision = head.partition("@")
    return _checked(
        text, f"{owner}/{name}", filename if slash else None, quant, unquote(revision) if at else None
    )


def _url(text: str, endpoint: str | None) -> Reference:
    try:
        url, text = urlsplit(text), redact(text)
    except ValueError:
        raise BadReferenceError(f"{redact(text)} is not a URL", f"write {_FORMS}") from None
    host = _host(url)
    if host not in HUB_HOSTS | ({_host(urlsplit(endpoint))} if endpoint else set()):
        raise BadReferenceError(
            f"{host} is not the Hugging Face Hub",
            "download the file with a browser, then give its path; for a mirror, set HF_ENDPOINT",
        )
    # decoded one by one, so that ``%2F`` stays inside its segment
    match [unquote(part) for part in url.path.strip("/").split("/")]:
        case [owner, name]:
            return _checked(text, f"{owner}/{name}", None, None, None)
        case [owner, name, "resolve" | "blob" | "raw", revision, first, *more]:
            return _checked(text, f"{owner}/{name}", "/".join([first, *more]), None, revision)
        case [owner, name, "tree", revision]:
            return _checked(text, f"{owner}/{name}", None, None, revision)
    raise BadReferenceError(
        f"{text} is not the URL of a model", "copy the link of the file, with /resolve/ or /blob/"
    )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # such as a name that is too long
        return False


def _host(url: SplitResult) -> str:
    return url.netloc.rpartition("@")[2].lower()


def _checked(
    text: str, repo: str, filename: str | None, quant: str | None, revision: str | None
) -> Reference:
    if not is_repo(repo):
        raise BadReferenceError(f"not a model reference: {text!r}", f"write {_FORMS}")
    if filename is not None and (not is_inside(filename) or not filename.lower().endswith(".gguf")):
        raise BadReferenceError(
            f"{filename!r} is not a GGUF file of a repository", "the name must end with .gguf"
        )
    if quant == "" or revision == "":
        raise BadReferenceError(f"{text!r} is incomplete", "a quant follows ':', a revision follows '@'")
    return Reference(text=text, repo=repo, filename=filename, quant=quant, revision=revision)
