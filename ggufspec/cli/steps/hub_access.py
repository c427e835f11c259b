"""Downloads of the models that commands name."""

from __future__ import annotations

from typing import TypeVar

from ggufspec.cli.entry.terminal import Terminal
from ggufspec.modelfiles import hub
from ggufspec.options import RunOptions

Asked = TypeVar("Asked", bound=RunOptions)


def fetch_models(asked: Asked) -> Asked:
    """Return options after downloading the models that it names and that are not here.

    Raises:
        ConsentNeededError: the download is large, and there is no terminal to ask on.
        GgufspecError: a model is not found, or cannot be downloaded.
    """
    from ggufspec import measure

    asked, access, terminal = measure.with_head(asked), hub.Access.of(asked), Terminal()
    surveys = measure.survey_models(measure.list_names(asked), access)
    for survey in surveys.values():
        if survey.missing_bytes:
            hub.download(survey, access, terminal, yes=asked.yes, remember=False)
    return measure.with_models(asked, {text: measure.file_of(survey) for text, survey in surveys.items()})
