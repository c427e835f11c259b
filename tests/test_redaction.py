"""What gives access is never shown: not in errors, not in logs, not in tracebacks."""

from __future__ import annotations

import base64
import logging
import subprocess
import sys
import traceback
from pathlib import Path
from urllib.parse import unquote

import pytest

from ggufspec import proc, redaction
from ggufspec.errors import BadReferenceError, BadTokenError, GgufspecError
from ggufspec.modelfiles import hub as hub_package
from ggufspec.publishing.redacting import Redactor
from ggufspec.redaction import Redacting, is_secret, redact, without_secrets, without_token_option
from tests.support import hub_client, shell
from tests.support.hub_client import PAIR, TARGET
from tests.support.hub_server import SIGNATURE, Fault, Hub
from tests.support.tokens import TOKENS

TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz"
PASSWORD = "s3cr3t%2Fword"
SECRETS = (TOKEN, PASSWORD, "Ym9iOnMz", *(part.split("=")[1] for part in SIGNATURE.split("&")))
LOUD = {"HF_HUB_VERBOSITY": "debug", "HF_DEBUG": "1"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("GET https://bob:pw@host/a", "GET https://***@host/a"),
        ("'https://host/a?X-Amz-Signature=12&x=3'", "'https://host/a?***'"),
        ("(b'Location', b'/file?sig=a%2Bb')", "(b'Location', b'/file?***')"),
        ("{'authorization': 'Bearer abc def', 'a': 'b'}", "{'authorization': '***', 'a': 'b'}"),
        ("(b'Authorization', b'Basic Ym9iOnB3')", "(b'Authorization', b'***')"),
        ("Set-Cookie: session=1234; Path=/", "Set-Cookie: ***"),
        ("curl -H 'x-xet-access-token: 123'", "curl -H 'x-xet-access-token: ***'"),
        ("sent Bearer abcdefgh", "sent Bearer ***"),
        (f"your token {TOKEN} is wrong", "your token hf_*** is wrong"),
        ("hf_hub_download() at user@host: who? nobody", "hf_hub_download() at user@host: who? nobody"),
        ("https://huggingface.co/a/b/resolve/main/c.gguf", "https://huggingface.co/a/b/resolve/main/c.gguf"),
    ],
)
def test_what_gives_access_is_replaced(text: str, shown: str) -> None:
    assert redact(text) == shown
    assert redact(shown) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"a token {TOKEN}, and ghp_0123456789abcdefgh", "a token ***, and ***"),
        ("https://bob:pw@host/a?x=1", "https://***@host/a?x=1"),
        ("Authorization: Bearer abcdefgh12345678", "Authorization: Bearer ***"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nafter", "***\nafter"),
        ("Basic understanding of bearer bonds and cookie: recipes", None),
    ],
)
def test_published_texts_keep_their_words(text: str, shown: str | None) -> None:
    assert Redactor()(text) == (text if shown is None else shown)


AROUND = (
    *("{}", "the key is {}, said nobody", "/srv/models/{}/t.gguf", "/srv/my_{}.gguf"),
    *("https://example.org/{}/x?key={}", "https://example.org/?next=%2F{}"),
    '{{"text": "one\\n{}"}}',
    "\x1b[32m{}\x1b[0m",
    "NAME={}",
    "--api-key={}",
)


@pytest.mark.parametrize("form", TOKENS)
def test_a_token_of_every_form_is_replaced_wherever_it_stands(form: str) -> None:
    token = TOKENS[form]
    for text in (around.format(token, token) for around in AROUND):
        assert token not in redact(text)
        assert token not in Redactor()(text), text
        assert is_secret("HARMLESS", text), text
        assert without_secrets({"HARMLESS": text, "CC": "gcc"}) == {"CC": "gcc"}, text


@pytest.mark.parametrize(
    "text",
    [
        "task-management-system-of-the-year, risk-adjusted-returns-and-so-on",
        "keyJsonSerializer.someMethodName.other, monkeyJourney.of.all",
        "huggingface_hub hf_hub_download convert_hf_to_gguf.py half_",
        "pypi-mirror, npm_config_cache=/x, sig=abc, design=wide",
        "llama_perf_context_print: eval time = 190.00 ms / 31 runs (6.13 ms per token, 163.16 per second)",
        "a1b2" * 16,
    ],
)
def test_ordinary_words_are_no_tokens(text: str) -> None:
    assert Redactor()(text) == text
    assert redact(text) == text


def test_the_options_that_hold_keys_are_left_out_of_a_stored_command() -> None:
    words = ("ggufspec", "bench", "--token", "a", "--token=b", "--api-key", "c", "--api-key=d", "-n", "8")
    assert without_token_option(words) == ("ggufspec", "bench", "-n", "8")


def test_log_records_pass_without_it() -> None:
    error = ValueError("https://bob:pw@host")
    exception = (ValueError, error, None)
    record = logging.LogRecord("x", logging.INFO, "x", 1, "%s", ("https://bob:pw@host",), exception)
    assert Redacting().filter(record)
    assert "pw" not in logging.Formatter().format(record)


@pytest.fixture
def guarded(hub: Hub) -> Hub:
    """A Hub behind a proxy that asks for a password, as HF_ENDPOINT can name one."""
    login = base64.b64encode(f"bob:{unquote(PASSWORD)}".encode()).decode()
    hub.tokens[f"Basic {login}"] = True
    hub.tokens[TOKEN] = True
    return hub


@pytest.mark.parametrize(
    ("flag", "fails"), [("--debug", False), ("--debug", True), ("-v", True), ("-q", True)]
)
def test_no_command_shows_a_login_or_a_signature(guarded: Hub, home: Path, flag: str, fails: bool) -> None:
    endpoint = guarded.url.replace("http://", f"http://bob:{PASSWORD}@")
    env = hub_client.environment(guarded, home) | LOUD | {"HF_ENDPOINT": endpoint, "HF_TOKEN": TOKEN}
    busy = Fault(where="file=t", status=503, headers={"Retry-After": "0"}, times=9 if fails else 1)
    guarded.faults = [busy]
    words = [sys.executable, "-m", "ggufspec", flag, "fetch", *PAIR]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) != fails
    assert "http" in done.stderr or flag == "-q"
    assert [secret for secret in SECRETS if secret in done.stdout + done.stderr] == []
    for path in home.rglob("*"):
        text = path.read_bytes() if path.is_file() and path.suffix not in {".gguf", ".sqlite"} else b""
        assert [secret for secret in SECRETS if secret.encode() in text] == []


def test_a_notebooks_traceback_shows_none(hub: Hub, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggufspec.modelfiles.hub.client.FIRST_PAUSE_S", 0)
    hub.faults = [Fault(where="file=t", status=503, headers={"Retry-After": "0"}, times=99)]
    reference = hub_package.parse_reference(TARGET, {})
    survey = hub_package.survey_fetch("x", reference, None, hub_package.Access())
    with pytest.raises(GgufspecError) as caught:
        [*hub_package.fetch(survey, hub_package.Access())]
    shown = "".join(traceback.format_exception(caught.value))
    assert "503" in shown
    assert [secret for secret in SECRETS if secret in shown] == []


@pytest.mark.parametrize(
    "address",
    [
        "example.com/x?X-Amz-Signature=0123456789abcdef",
        "huggingface.co/a/b/commits/main?Policy=cGxlYXNl",
        "[/a",
    ],
)
def test_a_reference_is_repeated_without_its_login(address: str) -> None:
    with pytest.raises(BadReferenceError) as caught:
        hub_package.parse_reference(f"https://bob:{PASSWORD}@{address}", {})
    assert [secret for secret in SECRETS if secret in f"{caught.value.message} {caught.value.hint}"] == []


def test_a_pair_is_called_by_its_address_without_the_login(hub: Hub, home: Path) -> None:
    address = f"{hub.url}/{TARGET.replace('/t-', '/resolve/main/t-')}?{SIGNATURE}"
    reference = hub_package.parse_reference(address.replace("//", f"//bob:{PASSWORD}@"), {}, endpoint=hub.url)
    assert (reference.repo, reference.filename) == ("me/T-GGUF", "t-Q4_K_M.gguf")
    assert [secret for secret in SECRETS if secret in reference.text] == []


@pytest.mark.parametrize("token", ["hf_geheim mit Leerzeichen", "hf_schlüssel", "hf_two\nlines", "hf_\x00"])
def test_a_token_that_cannot_be_sent_is_refused_without_it(token: str) -> None:
    access = hub_package.Access(token=token)
    with pytest.raises(BadTokenError) as caught:
        access.headers()
    assert token[3:] not in f"{caught.value.message} {caught.value.hint} {access!r}"


@pytest.mark.parametrize(
    "endpoint", ["host", "bob:s3cr3t@host", "http://bob:pa/ss@host", "http://host:pass", "ftp://a"]
)
def test_a_wrong_endpoint_is_refused_without_it(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    access = hub_package.Access()
    assert (access.host, access.site) == ("HF_ENDPOINT", "HF_ENDPOINT")
    for use in (access.api, access.headers):
        with pytest.raises(GgufspecError, match=r"(?m)^HF_ENDPOINT is not the address of a Hub$"):
            use()


@pytest.mark.parametrize(
    "setting",
    [{"HF_ENDPOINT": "http://bob:s3cr3t@[::x"}, {"HF_HUB_DOWNLOAD_TIMEOUT": "s3cr3t"}],
    ids=lambda setting: next(iter(setting)),
)
def test_a_variable_that_the_hub_cannot_read_is_refused_without_its_value(setting: dict[str, str]) -> None:
    """huggingface_hub reads its variables while it is imported, so a process of its own shows it."""
    done = shell.ggufspec("fetch", "a/b:Q8_0", env=setting)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "error: a variable of the Hugging Face Hub has a value that cannot be read",
        "hint: check HF_ENDPOINT, and each HF_HUB_* that is set",
    ]


@pytest.mark.parametrize(
    ("endpoint", "host", "site"),
    [
        ("http://bob:pw@host:80/hub/", "host:80", "http://host:80/hub"),
        ("https://huggingface.co", "huggingface.co", "https://huggingface.co"),
        ("http://[::1]:8080", "[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_an_endpoint_is_shown_without_its_login(
    monkeypatch: pytest.MonkeyPatch, endpoint: str, host: str, site: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    access = hub_package.Access()
    assert (access.host, access.site) == (host, site)
    assert "pw" not in repr(access)


# Secrets are told from settings, by name and by value, and addresses lose their credentials


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "hf_token", "HFTOKEN", "GITHUB_PAT", "OPENAI_API_KEY"),
        *("NVIDIA_API_KEY", "AWS_SESSION_TOKEN"),
        *("OPENAI_APIKEY", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "PGPASSWORD", "MYSQL_PWD"),
        *("SMTP_PASS", "GPG_PASSPHRASE", "npm_config_//registry.example/:_authToken"),
        *("GOOGLE_APPLICATION_CREDENTIALS", "PIP_CLIENT_SECRET", "SESSION_COOKIE", "SENTRY_DSN"),
    ],
)
def test_names_of_secrets_are_recognized(name: str) -> None:
    assert is_secret(name, "anything")


@pytest.mark.parametrize(
    "value",
    [
        *("https://me:pw@index.example/simple", "https://t0k3n@github.example/llama.cpp"),
        *("http://me:pw@proxy.example:3128", "one https://fine.example two https://:pw@index.example"),
        *("Authorization: Bearer abcdefghijkl", "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA"),
    ],
)
def test_values_with_a_secret_are_recognized_whatever_their_name(value: str) -> None:
    assert is_secret("HARMLESS", value)


def test_settings_are_kept() -> None:
    variables = (
        *("PATH=/usr/bin:/bin", "PWD=/home/me", "OLDPWD=/home/me", "SSH_AUTH_SOCK=/run/agent", "CC=gcc"),
        *("XAUTHORITY=/home/me/.Xauthority", "TOKENIZERS_PARALLELISM=false", "CXXFLAGS=-O3 -march=native"),
        *("CMAKE_PREFIX_PATH=/opt/passes", "GGML_CUDA_FORCE_MMQ=1", "OMP_NUM_THREADS=4", "LC_KEYBOARD=de"),
        *("PIP_INDEX_URL=https://index.example/simple", "GIT_URL=ssh://git@host.example/repo"),
        *("EMAIL=me@host.example", "HF_ENDPOINT=https://hub.example"),
    )
    settings = dict(variable.split("=", 1) for variable in variables)
    assert without_secrets(settings) == settings


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:pw@host.example/x", "https://***@host.example/x"),
        ("git+https://t0k3n@host.example/x.git", "git+https://***@host.example/x.git"),
        ("https://me:p@w@host.example", "https://***@host.example"),
        ("HTTPS://me:pw@HOST.example", "HTTPS://***@HOST.example"),
        (
            "a http://x:y@one.example and ftp://u:v@b.example",
            "a http://***@one.example and ftp://***@b.example",
        ),
        ("ssh://git:pw@host.example/x", "ssh://***@host.example/x"),
        *(
            (kept, kept)
            for kept in (
                *("ssh://git@host.example/x", "https://host.example/@scope/name?mail=a@b"),
                *("git@host.example:x.git", "no address"),
            )
        ),
    ],
)
def test_addresses_lose_their_credentials_and_nothing_else(text: str, shown: str) -> None:
    assert redaction.without_credentials(text) == shown


def test_children_do_not_inherit_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HARMLESS", "kept")
    _, out, _ = proc.capture(["/bin/sh", "-c", 'echo "${HF_TOKEN-none} $HARMLESS"'])
    assert out == "none kept\n"
