"""Who asks AWS: the environment, the shared files, and what botocore finds beyond those (MOD-6).

The order is AWS's own. A bearer token or keys in the environment come first and are looked at
anew each time. Then comes the profile: keys in the shared credentials file, else in the config
file. Roles, single sign-on, programs that give credentials, and the metadata of containers and
machines are left to botocore, where that is installed. Files and botocore are read in a thread,
and again after some minutes, so that what was refreshed beside the process is seen in time.
"""

from __future__ import annotations

import configparser
import datetime
import importlib
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import anyio
from anyio.lowlevel import RunVar

from loopctl._clock import Clock
from loopctl._threads import Threads
from loopctl.errors import AuthError, ConfigError
from loopctl.wire.sigv4 import AwsCredentials

BEARER = "AWS_BEARER_TOKEN_BEDROCK"

LIFE = datetime.timedelta(minutes=5)
"""After what time credentials are read again."""

_Profile: TypeAlias = Mapping[str, str]

_PROFILE = ("AWS_DEFAULT_PROFILE", "AWS_PROFILE")
_ROLES = ("role_arn", "sso_session", "sso_start_url", "sso_account_id", "web_identity_token_file")
_PROGRAMS = ("credential_process", "login_session")
_TOKENS = ("AWS_SECURITY_TOKEN", "AWS_SESSION_TOKEN")


class CredentialChain:
    """Finds the credentials of one client; `profile` makes it look into that profile only."""

    def __init__(self, *, profile: str | None, clock: Clock) -> None:
        self._profile = profile
        self._clock = clock
        self._found: AwsCredentials | None = None
        self._until: datetime.datetime | None = None
        self._botocore: Any = None
        self._threads = Threads()

    async def find(self) -> AwsCredentials:
        """The credentials of this moment.

        Raises `ConfigError` when there are none, and `AuthError` when botocore cannot get them.
        """
        if self._profile is None and (found := _of_environment()) is not None:
            return found
        if (found := self._kept()) is not None:
            return found
        async with self._lock():
            if (found := self._kept()) is not None:
                return found
            found = await self._threads.run(self._read)
            self._found, self._until = found, self._clock.now() + LIFE
            return found

    async def region(self) -> str | None:
        """The region that the config file names for the profile."""
        return await self._threads.run(lambda: _region(self._profile))

    def forget(self) -> None:
        """Read everything again next time: the server refused what was found."""
        self._found = None

    def _kept(self) -> AwsCredentials | None:
        if self._found is None or self._until is None or self._clock.now() >= self._until:
            return None
        return self._found

    def _lock(self) -> anyio.Lock:
        """One for each event loop: many requests at once need one look into the files."""
        locks = _LOCKS.get(None)
        if locks is None:
            locks = WeakKeyDictionary[CredentialChain, anyio.Lock]()
            _LOCKS.set(locks)
        return locks.setdefault(self, anyio.Lock())

    def _read(self) -> AwsCredentials:
        name = _profile_name(self._profile)
        shared, config = _read_profiles(name)
        told = self._profile or next((os.environ[n] for n in _PROFILE if os.environ.get(n)), None)
        if told is not None and not shared and not config:
            raise ConfigError(
                f"there is no profile {told!r} in {_shared_file()} or {_config_file()}"
            )
        found = None
        roles = any(field in profile for profile in (config, shared) for field in _ROLES)
        if not roles and not os.environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
            found = _of_profile(shared, name)
            if found is None and not any(field in config for field in _PROGRAMS):
                found = _of_profile(config, name)
        return found or self._beyond(name)

    def _beyond(self, name: str) -> AwsCredentials:
        """What botocore finds; it refreshes by itself what ends."""
        if self._botocore is None:
            try:
                # not an import of its own: nothing here needs an SDK
                session: Any = importlib.import_module("botocore.session")
            except ImportError:
                raise ConfigError(
                    "no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or"
                    f" {BEARER}, or write them into the profile {name!r} of {_shared_file()}; for"
                    " roles, single sign-on and the metadata of a machine install botocore"
                ) from None
            self._botocore = session.Session(profile=self._profile)
        try:
            credentials = self._botocore.get_credentials()
            frozen = None if credentials is None else credentials.get_frozen_credentials()
        except Exception as error:
            raise AuthError(f"botocore: {error}") from error
        if frozen is None:
            self._botocore = None  # it would remember that there were none
            raise ConfigError(
                "no AWS credentials: neither in the environment nor in the shared files, and"
                " botocore finds none either; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or"
                f" {BEARER}"
            )
        return AwsCredentials(
            access_key=frozen.access_key, secret_key=frozen.secret_key, session_token=frozen.token
        )


_LOCKS: RunVar[WeakKeyDictionary[CredentialChain, anyio.Lock]] = RunVar("loopctl_bedrock")


def _profile_name(given: str | None) -> str:
    named = (os.environ[name] for name in _PROFILE if os.environ.get(name))
    return given or next(named, "default")


def _region(given: str | None) -> str | None:
    return _profiles(_config_file(), config=True).get(_profile_name(given), {}).get("region")


def _config_file() -> Path:
    return _path("AWS_CONFIG_FILE", "~/.aws/config")


def _shared_file() -> Path:
    return _path("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")


def _path(variable: str, usual: str) -> Path:
    return Path(os.path.expanduser(os.path.expandvars(os.environ.get(variable) or usual)))


def _of_environment() -> AwsCredentials | None:
    access_key = os.environ.get("AWS_ACCESS_KEY_ID")
    if not access_key:
        return None
    secret_key = os.environ.get("AWS_SECRET_ACCESS_KEY")
    if not secret_key:
        raise ConfigError("AWS_ACCESS_KEY_ID is set, but AWS_SECRET_ACCESS_KEY is not")
    token = next((os.environ[name] for name in _TOKENS if os.environ.get(name)), None)
    return AwsCredentials(access_key=access_key, secret_key=secret_key, session_token=token)


def _read_profiles(name: str) -> tuple[_Profile, _Profile]:
    """The profile in the shared credentials file and in the config file, empty where it is not."""
    shared = _profiles(_shared_file(), config=False).get(name, {})
    return shared, _profiles(_config_file(), config=True).get(name, {})


def _of_profile(profile: _Profile, name: str) -> AwsCredentials | None:
    access_key = profile.get("aws_access_key_id")
    if access_key is None:
        return None
    secret_key = profile.get("aws_secret_access_key")
    if not access_key or not secret_key:
        raise ConfigError(f"the profile {name!r} has no aws_secret_access_key beside its key id")
    token = profile.get("aws_security_token") or profile.get("aws_session_token")
    return AwsCredentials(access_key=access_key, secret_key=secret_key, session_token=token)


def _profiles(path: Path, *, config: bool) -> Mapping[str, _Profile]:
    """The profiles of a file; none where there is no file.

    In the config file all but `default` stand under `[profile name]`. Raises `ConfigError` for a
    file that cannot be read.
    """
    if not path.is_file():
        return {}
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except (configparser.Error, UnicodeDecodeError, OSError) as error:
        told = type(error).__name__  # the text may quote a line that holds a secret
        raise ConfigError(f"{path} cannot be read: {told}") from None
    profiles: dict[str, _Profile] = {}
    for section in parser.sections():
        name = _named(section) if config and section != "default" else section
        if name is not None:
            profiles[name] = dict(parser.items(section))
    return profiles


def _named(section: str) -> str | None:
    """The profile that a section of the config file is about."""
    try:
        words = shlex.split(section)
    except ValueError:
        return None
    return words[1] if len(words) == 2 and words[0] == "profile" else None
