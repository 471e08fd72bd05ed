"""What is remembered beyond a conversation: the protocol, the scoring, a store in memory."""
