from __future__ import annotations

import builtins
import datetime
import importlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import botocore.session
import pytest

from loopctl.errors import AuthError, ConfigError
from loopctl.models.bedrock.credentials import LIFE, CredentialChain
from loopctl.wire.sigv4 import AwsCredentials

pytestmark = pytest.mark.anyio

SHARED = """
[default]
aws_access_key_id = SHARED
aws_secret_access_key = s1
[work]
aws_access_key_id=WORK
aws_secret_access_key=s2
aws_session_token=t2
[old]
aws_access_key_id = OLD
aws_secret_access_key = s3
aws_security_token = t3
; a comment
[partial]
aws_access_key_id = PARTIAL
"""
CONFIG = """
[default]
region = eu-west-1
[profile work]
region = us-west-2
[profile "two words"]
aws_access_key_id = TWO
aws_secret_access_key = s4
region = ap-south-1
s3 =
  addressing_style = path
[ignored]
aws_access_key_id = NO
aws_secret_access_key = NO
[profile empty]
output = json
[profile process]
credential_process = {program}
[profile broken "]
x = 1
"""


PRINTED = '{"Version": 1, "AccessKeyId": "PROC", "SecretAccessKey": "s5"}'


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.moment = datetime.datetime(2026, 11, 30, tzinfo=datetime.UTC)

    def now(self) -> datetime.datetime:
        return self.moment

    def new_id(self, kind: str) -> str:
        return kind

    def random(self) -> float:
        return 0.0


@pytest.fixture(autouse=True)
def files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The shared files in a folder of the test's, and no other source."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    (tmp_path / "credentials").write_text(SHARED, encoding="utf-8")
    program = tmp_path / "program.py"
    program.write_text(f"print({PRINTED!r})", encoding="utf-8")
    config = CONFIG.format(program=f"{sys.executable} {program}")
    (tmp_path / "config").write_text(config, encoding="utf-8")
    return tmp_path


def chain(profile: str | None = None, clock: Clock | None = None) -> CredentialChain:
    return CredentialChain(profile=profile, clock=clock or Clock())


async def found(profile: str | None = None) -> AwsCredentials:
    return await chain(profile).find()


def of_botocore(profile: str | None = None) -> AwsCredentials:
    frozen = botocore.session.Session(profile=profile).get_credentials().get_frozen_credentials()
    return AwsCredentials(
        access_key=frozen.access_key, secret_key=frozen.secret_key, session_token=frozen.token
    )


PLACES: dict[str, tuple[dict[str, str], str | None, str]] = {
    "default": ({}, None, "SHARED"),
    "environment": ({"AWS_ACCESS_KEY_ID": "ENV", "AWS_SECRET_ACCESS_KEY": "s"}, None, "ENV"),
    "session": (
        {"AWS_ACCESS_KEY_ID": "E", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "t"},
        None,
        "E",
    ),
    "two tokens": (
        {
            "AWS_ACCESS_KEY_ID": "E",
            "AWS_SECRET_ACCESS_KEY": "s",
            "AWS_SESSION_TOKEN": "t",
            "AWS_SECURITY_TOKEN": "u",
        },
        None,
        "E",
    ),
    "keys before a profile": (
        {"AWS_PROFILE": "work", "AWS_ACCESS_KEY_ID": "ENV", "AWS_SECRET_ACCESS_KEY": "s"},
        None,
        "ENV",
    ),
    "AWS_PROFILE": ({"AWS_PROFILE": "work"}, None, "WORK"),
    "AWS_DEFAULT_PROFILE": ({"AWS_DEFAULT_PROFILE": "work", "AWS_PROFILE": "old"}, None, "WORK"),
    "a given profile": (
        {"AWS_ACCESS_KEY_ID": "ENV", "AWS_SECRET_ACCESS_KEY": "s", "AWS_PROFILE": "old"},
        "work",
        "WORK",
    ),
    "an old token": ({}, "old", "OLD"),
    "the config file": ({}, "two words", "TWO"),
    "no shared file": (
        {"AWS_SHARED_CREDENTIALS_FILE": "/nowhere", "AWS_PROFILE": "two words"},
        None,
        "TWO",
    ),
    "a program": ({}, "process", "PROC"),
}


@pytest.mark.parametrize("name", PLACES)
async def test_credentials_are_those_that_the_official_library_finds(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MOD-6: environment, shared files, profiles, in AWS's own order."""
    variables, profile, key = PLACES[name]
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    credentials = await found(profile)
    assert credentials.access_key == key
    assert credentials == of_botocore(profile)


@pytest.mark.parametrize("profile", [None, "work", "two words", "empty", "nowhere"])
async def test_the_region_is_that_of_the_profile(profile: str | None) -> None:
    """MOD-6: from the config file."""
    expected = {None: "eu-west-1", "work": "us-west-2", "two words": "ap-south-1"}.get(profile)
    assert await chain(profile).region() == expected


async def test_the_home_folder_is_where_the_files_usually_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """MOD-6: `~` in variables and without them."""
    (tmp_path / ".aws").mkdir()
    (tmp_path / "credentials").rename(tmp_path / ".aws" / "credentials")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.delenv("AWS_SHARED_CREDENTIALS_FILE")
    assert (await found()).access_key == "SHARED"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
    assert (await found()).access_key == "SHARED"


WRONG: list[tuple[dict[str, str], str | None, str]] = [
    ({"AWS_ACCESS_KEY_ID": "a"}, None, "AWS_SECRET_ACCESS_KEY is not"),
    ({}, "nowhere", "no profile 'nowhere'"),
    ({"AWS_PROFILE": "nowhere"}, None, "no profile 'nowhere'"),
    ({}, "partial", "no aws_secret_access_key"),
]


@pytest.mark.parametrize(("variables", "profile", "words"), WRONG)
async def test_what_is_half_there_is_told(
    variables: dict[str, str], profile: str | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MOD-6: by its name, and nothing else is taken instead."""
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=words):
        await found(profile)


@pytest.mark.parametrize("text", ["aws_secret_access_key = hush", "[a]\n[a]\nhush = 1", "\xff"])
async def test_a_file_that_cannot_be_read_keeps_its_secrets(text: str, files: Path) -> None:
    """MOD-11: the error names the file and quotes nothing of it."""
    (files / "credentials").write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError, match="credentials cannot be read") as caught:
        await found()
    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None


def without_botocore(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def imported(name: str, *rest: Any) -> Any:
        if name.startswith("botocore"):
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", imported)


@pytest.mark.parametrize("profile", [None, "empty", "process"])
async def test_without_credentials_the_error_says_where_they_may_be(
    profile: str | None, monkeypatch: pytest.MonkeyPatch, files: Path
) -> None:
    """MOD-6: the variables, the file, and what needs botocore."""
    (files / "credentials").unlink()
    without_botocore(monkeypatch)
    with pytest.raises(ConfigError, match=r"AWS_ACCESS_KEY_ID.*AWS_BEARER_TOKEN_BEDROCK.*botocore"):
        await found(profile)


async def test_botocore_may_find_none_either(files: Path) -> None:
    """MOD-6: then it is asked again the next time."""
    (files / "credentials").unlink()
    one = chain()
    with pytest.raises(ConfigError, match="botocore finds none either"):
        await one.find()
    config = f"[default]\ncredential_process = {sys.executable} {files / 'program.py'}\n"
    (files / "config").write_text(config, encoding="utf-8")
    assert (await one.find()).access_key == "PROC"


async def test_roles_are_left_to_botocore(monkeypatch: pytest.MonkeyPatch, files: Path) -> None:
    """MOD-6: keys beside a role are the role's source, not who asks; what fails is an AuthError."""
    extra = "[profile role]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = role\n"
    extra += "aws_access_key_id = SOURCE\naws_secret_access_key = s\n"
    (files / "config").write_text(extra, encoding="utf-8")
    asked: list[str | None] = []

    class Session:
        def __init__(self, profile: str | None) -> None:
            asked.append(profile)

        def get_credentials(self) -> Any:
            if len(asked) > 1:
                raise OSError("no network")
            frozen = SimpleNamespace(access_key="ROLE", secret_key="s", token="t")
            return SimpleNamespace(get_frozen_credentials=lambda: frozen)

    monkeypatch.setattr(botocore.session, "Session", Session)
    assert (await found("role")).access_key == "ROLE"
    assert asked == ["role"]
    with pytest.raises(AuthError, match="no network"):
        await found("role")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "token")
    with pytest.raises(AuthError):
        await found()


async def test_the_files_are_read_again_after_some_minutes_or_a_refusal(files: Path) -> None:
    """MOD-6: what was refreshed beside the process is seen; in between nothing is read."""
    clock = Clock()
    one = chain(clock=clock)
    assert (await one.find()).access_key == "SHARED"
    path = files / "credentials"
    path.write_text(SHARED.replace("SHARED", "SECOND"), encoding="utf-8")
    clock.moment += LIFE - datetime.timedelta(seconds=1)
    assert (await one.find()).access_key == "SHARED"
    clock.moment += datetime.timedelta(seconds=1)
    assert (await one.find()).access_key == "SECOND"
    path.write_text(SHARED.replace("SHARED", "THIRD"), encoding="utf-8")
    one.forget()
    assert (await one.find()).access_key == "THIRD"


async def test_many_requests_at_once_read_the_files_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """MOD-5: one look for all of them, in a thread."""
    one = chain()
    reads: list[int] = []
    real = CredentialChain._read

    def counted(self: CredentialChain) -> AwsCredentials:
        reads.append(1)
        return real(self)

    monkeypatch.setattr(CredentialChain, "_read", counted)
    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(one.find)
    assert len(reads) == 1


def test_one_chain_serves_one_event_loop_after_another() -> None:
    """MOD-5: asyncio, trio, and asyncio again, each with requests that wait for another."""
    one = chain()

    async def ask() -> None:
        one.forget()
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(one.find)

    for backend in ("asyncio", "trio", "asyncio"):
        anyio.run(ask, backend=backend)


async def test_nothing_is_read_where_the_environment_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MOD-6: no file is opened for keys of the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setattr(builtins, "open", None)
    monkeypatch.setattr(Path, "read_text", None)
    assert (await found()).access_key == "ENV"
