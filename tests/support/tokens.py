"""Tokens of the forms that services give out; none of them gives access to anything."""

from __future__ import annotations

TOKENS = {
    "hugging-face": "hf_AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh",
    "github": "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "gitlab": "glpat-AbCdEfGhIjKlMnOpQrSt",
    "openai": "sk-proj-AbCdEfGhIjKlMnOpQrStUvWx",
    "google-api": "AIzaSyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q",
    "google-client": "GOCSPX-AbCdEfGhIjKlMnOpQrStUvWxYz01",
    "google-access": "ya29.a0AfH6SMBx-AbCdEfGhIjKlMnOp_QrStUvWxYz0123456789",
    "npm": "npm_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789",
    "pypi": "pypi-AgEIcHlwaS5vcmcCJDAxMjM0NTY3LTg5YWItY2RlZi0wMTIzLTQ1Njc4OWFiY2RlZg",
    "stripe": "sk_live_51AbCdEfGhIjKlMnOpQrStUv",
    "stripe-restricted": "rk_live_51AbCdEfGhIjKlMnOpQrStUv",
    "stripe-webhook": "whsec_AbCdEfGhIjKlMnOpQrStUvWxYz012345",
    "azure-storage": f"AccountKey={'AbCd1234+/' * 8}AbCd12==",
    "azure-storage-bare": f"{'AbCd1234+/' * 8}AbCd12==",
    "azure-signature": "sig=AbCdEfGhIjKlMnOpQrStUvWxYz0123456789%2BAbCdE%3D",
    "azure-client": "AbC8Q~AbCdEfGhIjKlMnOpQrStUvWxYz01234567",
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "slack": "xoxb-123456789012-AbCdEfGhIjKl",
    "web-token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4fwpM",
}
