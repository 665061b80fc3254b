"""Pictures of schedules, of models on ranks, and of proofs, which notebooks show in the place of a text."""
