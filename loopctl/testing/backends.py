"""The event loops that the contract suites run on: asyncio, and trio if it is installed."""

import importlib.util

BACKENDS = ["asyncio", *(["trio"] if importlib.util.find_spec("trio") else [])]
