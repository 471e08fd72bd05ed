"""What rides a request: contributors, attachments, and how a request is put together."""
