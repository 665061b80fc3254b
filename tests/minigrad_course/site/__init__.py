"""Tests of the site: built from a small course, and visited by Chromium."""
