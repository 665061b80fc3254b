"""Laws of lessons/minigrad_course/site/course_text.py: of Markdown and lessons the sentences are left."""

import gzip
import sys

from minigrad_course.site import course_text as module
from minigrad_course.site.course_text import course_text, main, paragraphs

from minigrad.text import course

MARKDOWN = """# A heading
Two lines that
are one – *really*, by [a link](lessons/README.md).

```sh
minigrad train
```

| a | table |
|---|---|

<img src="x.png">

    x = 1

- a point
  that goes on
- another² one
"""

LESSON = '''"""Lesson 99. A title."""

# %%
x = "code"

# %% [markdown]
# ## Part
# A sentence.
'''


def test_sentences_are_left():
    assert list(paragraphs(MARKDOWN)) == [
        "# A heading",
        "Two lines that are one - *really*, by a link.",
        "- a point that goes on\n- another2 one",
    ]


def test_lessons_follow_the_other_texts(tmp_path, monkeypatch):
    (tmp_path / "README.md").write_text(MARKDOWN, encoding="utf-8")
    (tmp_path / "99_new").mkdir()
    (tmp_path / "99_new" / "lesson.py").write_text(LESSON, encoding="utf-8")
    content = course_text(tmp_path)
    assert content.endswith(b"- another2 one\n\n# Lesson 99. A title\n\n## Part\n\nA sentence.\n")
    monkeypatch.setattr(module, "course_text", lambda: content)
    monkeypatch.setattr(sys, "argv", ["course_text", str(tmp_path / "t.gz")])
    main()
    packed = (tmp_path / "t.gz").read_bytes()
    main()
    assert gzip.decompress(packed) == content and (tmp_path / "t.gz").read_bytes() == packed


def test_the_frozen_text_is_such_prose():
    blocks = course().decode("ascii").rstrip("\n").split("\n\n")
    assert len(blocks) == 1103 and all("\n\n" not in block and "```" not in block for block in blocks)
    assert "# Lesson 01. Gradient descent: compute the slope, take a step down, and repeat" in blocks
