"""Every rank holds a part of the model and sees the whole batch."""
