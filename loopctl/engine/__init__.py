"""The driver's steps: ask the machine, do the one thing, feed the answer back (ENG-12).

`session` holds what a session is made of, `flight` what one run is; `run` asks the machine and
has `model_step` and `tool_step` do; `emitter` is the one place that events leave through.
"""
