"""Who owns what, over messages: the parallel strategies and what they stand on."""
