"""No secret reaches the store, wherever it turns up, and JSON stays JSON."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from perdure.adapters.http.redact import REDACTED, Redactor, clean_url
from perdure.testing.model_server import ModelServer
from tests.adapters.http.capture import CALLERS, SECRET, exchange

NOTHING: dict[str, str] = {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Authorization", "Bearer plain-token-value"),
        ("x-api-key", "plain-token-value"),
        ("X-Goog-Api-Key", "plain-token-value"),
        ("api-key", "plain-token-value"),
        ("Cookie", "a=1; session=plain-token-value"),
        ("Proxy-Authorization", "Basic " + base64.b64encode(b"me:plain-token-value").decode()),
        ("X-Amz-Security-Token", "plain-token-value"),
        ("Authorization", "AWS4-HMAC-SHA256 Credential=AKIA/x, SignedHeaders=host, Signature=plain-token-value"),
    ],
)
def test_what_a_request_carried_as_its_credentials_is_found_everywhere(name: str, value: str) -> None:
    redactor = Redactor(NOTHING)
    redactor.learn("https://h/", {name: value, "accept": "application/json"})
    assert redactor.text("You sent plain-token-value.") == f"You sent {REDACTED}."
    assert redactor.text(b"\xff plain-token-value") == b"\xff " + REDACTED.encode()
    assert redactor.text("application/json") == "application/json"


@pytest.mark.parametrize(
    "url",
    ["https://h/?key=plain-token-value", "https://h/?a=1&api_key=plain-token-value", "https://me:plain-token-value@h/"],
)
def test_credentials_in_an_address_are_dropped_and_found_everywhere(url: str) -> None:
    redactor = Redactor(NOTHING)
    redactor.learn(url, {})
    assert "plain-token-value" not in redactor.url(url)
    assert redactor.text("bad key plain-token-value") == f"bad key {REDACTED}"


def test_an_address_keeps_what_is_no_secret() -> None:
    assert clean_url("https://h:8/p?alt=sse&key=1&api-version=2") == "https://h:8/p?alt=sse&api-version=2"


@pytest.mark.parametrize(
    "name", ["OPENAI_API_KEY", "HF_TOKEN", "DB_PASSWORD", "client_secret", "AWS_SECRET_ACCESS_KEY", "GITHUB_PAT"]
)
def test_a_variable_that_is_named_like_a_key_is_a_secret(name: str) -> None:
    assert Redactor({name: "plain-token-value"}).text("is plain-token-value") == f"is {REDACTED}"


def test_the_password_in_the_address_of_a_database_is_a_secret() -> None:
    redactor = Redactor({"DATABASE_URL": "postgresql://me:pass%40word9@db/x"})
    assert redactor.text("pass@word9 pass%40word9") == f"{REDACTED} {REDACTED}"


@pytest.mark.parametrize(
    "variables",
    [
        {"HOME": "/home/somebody"},
        {"XDG_SESSION_DESKTOP": "some-desktop"},
        {"SSH_AUTH_SOCK": "/run/ssh-agent"},
        {"SSL_CERT_KEY": "/etc/ssl/some.key"},
        {"MY_API_KEY": "short"},
        {"LLM_API_KEY": ""},
    ],
)
def test_innocent_text_is_left_as_it_is(variables: dict[str, str]) -> None:
    text = "in /home/somebody on some-desktop: short, /run/ssh-agent, /etc/ssl/some.key"
    assert Redactor(variables).text(text) is text


@pytest.mark.parametrize(
    "key",
    [
        "sk-proj-abcDEF0123456789abcdef",
        "sk-ant-api03-abcDEF0123456789-abcdef",
        "sk-abcdefghijklmnop1234567890",
        "sk-proj-abc*****************************wxyz",
        "sk-...wxyz",
        "AIzaSyA1234567890abcdefghijklmnopqrstuv",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_abcdefghijklmnopqrst1234",
        "gsk_abcdefghijklmnopqrst1234",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-_123",
    ],
)
def test_a_key_is_known_by_its_look_even_if_nobody_named_it(key: str) -> None:
    body = json.dumps({"error": {"message": f"Incorrect API key provided: {key}. Find yours in the settings."}})
    clean = Redactor(NOTHING).text(body)
    assert json.loads(clean)["error"]["message"].startswith(f"Incorrect API key provided: {REDACTED}")
    assert key not in clean


@pytest.mark.parametrize(
    "text", ["task-force", "sk-learn is a library", "a risk-averse, disk-based one", "ask-me-anything-now-please"]
)
def test_words_that_only_resemble_keys_stay(text: str) -> None:
    assert Redactor(NOTHING).text(text) == text


def test_only_headers_known_to_be_harmless_are_stored() -> None:
    redactor = Redactor(NOTHING)
    redactor.learn("https://h/", {"authorization": "Bearer plain-token-value"})
    given_headers = {
        "Content-Type": "text/event-stream",
        "x-request-id": "req_1 plain-token-value",
        "retry-after": "2",
        "x-ratelimit-remaining-tokens": "5",
        "Set-Cookie": "__cf_bm=abcdef",
        "openai-organization": "acme",
        "x-custom-token": "t",
        "www-authenticate": "Bearer",
    }
    assert redactor.headers(given_headers) == {
        "Content-Type": "text/event-stream",
        "x-request-id": f"req_1 {REDACTED}",
        "retry-after": "2",
        "x-ratelimit-remaining-tokens": "5",
    }


@pytest.mark.parametrize("caller", [name for name in CALLERS if name != "gemini"])
def test_nothing_of_a_genuine_request_of_an_sdk_leaks(model: ModelServer, caller: str) -> None:
    model.fails(401, f"Incorrect API key provided: {SECRET}.")
    with pytest.raises(Exception, match="401"):
        exchange(model, caller, stream=False)
    sent = exchange(model, caller, stream=True)
    redactor = Redactor(NOTHING)
    redactor.learn(sent.url, sent.headers)
    assert SECRET not in redactor.text(json.dumps(sent.headers))
    assert set(redactor.headers(sent.answer_headers)) <= {"content-type", "date", "request-id", "x-request-id"}
    assert redactor.text(sent.answer) == sent.answer


@pytest.mark.parametrize(
    ("secret", "document"),
    [
        ("1234567890", '{"id":1234567890,"text":"1234567890"}'),
        ("nabcdefgh", '{"text":"line\\nabcdefgh"}'),
        ('a","role":"b', '{"text":"a","role":"b"}'),
        ("u0041bcdefg", '["\\u0041bcdefg"]'),
        ("[[1,2],[3,4]]", '{"a":[[1,2],[3,4]]}'),
    ],
)
def test_a_secret_that_looks_like_a_part_of_json_does_not_break_it(secret: str, document: str) -> None:
    redactor = Redactor({"API_KEY": secret})
    json.loads(redactor.text(document))
    stream = f"event: x\r\ndata: {document}\r\n\r\ndata: [DONE]\r\n\r\n"
    clean = redactor.text(stream)
    assert clean.count("\r\n") == stream.count("\r\n")
    assert clean.endswith("data: [DONE]\r\n\r\n")
    json.loads(clean.splitlines()[1].removeprefix("data: "))


secrets = st.text(min_size=8, max_size=20).filter(lambda text: text.strip() == text and " " not in text)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=6,
)


@settings(deadline=None, max_examples=150)
@given(secrets, values, st.booleans())
def test_no_secret_survives_in_json_and_the_json_stays(secret: str, value: Any, ascii_only: bool) -> None:
    assume(not secret.startswith(("/", "~")))
    assume(all(letter < "\ud800" or letter > "\udfff" for letter in secret + json.dumps(value, ensure_ascii=False)))
    document = json.dumps({"said": f"<{secret}>", "rest": value, "address": quote(secret)}, ensure_ascii=ascii_only)
    clean = Redactor({"API_KEY": secret}).text(document)
    found = json.loads(clean)
    assert secret not in json.dumps(found, ensure_ascii=False)
    assert secret not in str(found["said"])


def test_key_that_is_put_into_the_environment_later_is_known_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    redactor = Redactor()
    monkeypatch.setenv("BILLING_API_KEY", "bk-77aa88bb99cc")
    assert redactor.text("charged with bk-77aa88bb99cc") == f"charged with {REDACTED}"
    monkeypatch.setenv("BILLING_API_KEY", "bk-00dd11ee22ff")
    assert redactor.text("charged with bk-00dd11ee22ff") == f"charged with {REDACTED}"
    assert redactor.text("charged with bk-77aa88bb99cc") == f"charged with {REDACTED}"
