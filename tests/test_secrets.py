"""Secrets are told from settings, by name and by value, and addresses lose their credentials."""

from __future__ import annotations

import pytest

from ggufspec import proc, redaction

TOKEN = "hf_" + "a1B2c3D4" * 4


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "hf_token",
        "HFTOKEN",
        "GITHUB_PAT",
        "OPENAI_API_KEY",
        "OPENAI_APIKEY",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "PGPASSWORD",
        "MYSQL_PWD",
        "SMTP_PASS",
        "GPG_PASSPHRASE",
        "npm_config_//registry.example/:_authToken",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "PIP_CLIENT_SECRET",
        "SESSION_COOKIE",
        "SENTRY_DSN",
    ],
)
def test_names_of_secrets_are_recognized(name: str) -> None:
    assert redaction.is_secret(name, "anything")


@pytest.mark.parametrize(
    "value",
    [
        "https://me:pw@index.example/simple",
        "https://t0k3n@github.example/llama.cpp",
        "http://me:pw@proxy.example:3128",
        "one https://fine.example two https://:pw@index.example",
        f"prefix {TOKEN}",
        "ghp_" + "x" * 36,
        "Authorization: Bearer abcdefghijkl",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA",
    ],
)
def test_values_with_a_secret_are_recognized_whatever_their_name(value: str) -> None:
    assert redaction.is_secret("HARMLESS", value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PATH", "/usr/bin:/bin"),
        ("PWD", "/home/me"),
        ("OLDPWD", "/home/me"),
        ("SSH_AUTH_SOCK", "/run/agent"),
        ("XAUTHORITY", "/home/me/.Xauthority"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("CC", "gcc"),
        ("CXXFLAGS", "-O3 -march=native"),
        ("CMAKE_PREFIX_PATH", "/opt/passes"),
        ("GGML_CUDA_FORCE_MMQ", "1"),
        ("OMP_NUM_THREADS", "4"),
        ("LC_KEYBOARD", "de"),
        ("PIP_INDEX_URL", "https://index.example/simple"),
        ("GIT_URL", "ssh://git@host.example/repo"),
        ("EMAIL", "me@host.example"),
        ("HF_ENDPOINT", "https://hub.example"),
    ],
)
def test_settings_are_kept(name: str, value: str) -> None:
    assert redaction.without_secrets({name: value}) == {name: value}


def test_secrets_are_left_out_and_everything_else_is_kept() -> None:
    given = {"PATH": "/bin", "HF_TOKEN": TOKEN, "PIP_INDEX_URL": "https://a:b@c.example", "CC": "clang"}
    assert redaction.without_secrets(given) == {"PATH": "/bin", "CC": "clang"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:pw@host.example/x", "https://***@host.example/x"),
        ("git+https://t0k3n@host.example/x.git", "git+https://***@host.example/x.git"),
        ("https://me:p@w@host.example", "https://***@host.example"),
        ("HTTPS://me:pw@HOST.example", "HTTPS://***@HOST.example"),
        (
            "a http://x:y@one.example and ftp://u:v@two.example",
            "a http://***@one.example and ftp://***@two.example",
        ),
        ("ssh://git@host.example/x", "ssh://git@host.example/x"),
        ("ssh://git:pw@host.example/x", "ssh://***@host.example/x"),
        ("https://host.example/@scope/name?mail=a@b", "https://host.example/@scope/name?mail=a@b"),
        ("git@host.example:x.git", "git@host.example:x.git"),
        ("no address", "no address"),
    ],
)
def test_addresses_lose_their_credentials_and_nothing_else(text: str, shown: str) -> None:
    assert redaction.without_credentials(text) == shown


def test_children_do_not_inherit_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HARMLESS", "kept")
    _, out, _ = proc.capture(["/bin/sh", "-c", 'echo "${HF_TOKEN-none} $HARMLESS"'])
    assert out == "none kept\n"
