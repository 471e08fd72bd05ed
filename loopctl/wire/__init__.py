"""Bytes in, values out, no IO: nothing here opens, reads, waits or knows a client (MOD-7)."""
