"""Tools: what the model may call, and how its calls are run, decided and answered."""
