"""Tools that ship with loopctl. None is on by itself: give them to a session (TOL-23)."""

from loopctl.tools.builtin.read import read_text_file

__all__ = ["read_text_file"]
