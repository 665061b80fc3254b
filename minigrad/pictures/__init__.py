"""Pictures of objects, which notebooks show in the place of their text."""
