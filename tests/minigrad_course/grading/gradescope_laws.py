"""Laws of lessons/minigrad_course/grading/reports.py: a report has the JSON that Gradescope reads."""

NUMBER, FORMAT = (int, float), {"text", "html", "simple_format", "md", "ansi"}
VISIBILITY = {"hidden", "after_due_date", "after_published", "visible"}
TEST = {
    "score": NUMBER,
    "max_score": NUMBER,
    "status": {"passed", "failed"},
    "name": str,
    "name_format": FORMAT,
    "number": str,
    "output": str,
    "output_format": FORMAT,
    "tags": [str],
    "visibility": VISIBILITY,
    "extra_data": dict,
}
GRADESCOPE = {  # all that https://gradescope-autograders.readthedocs.io/en/latest/specs/ names
    "score": NUMBER,
    "execution_time": NUMBER,
    "output": str,
    "output_format": FORMAT,
    "test_output_format": FORMAT,
    "test_name_format": FORMAT,
    "visibility": VISIBILITY,
    "stdout_visibility": VISIBILITY,
    "extra_data": dict,
    "tests": [TEST],
    "leaderboard": [{"name": str, "value": (int, float, str), "order": {"asc", "desc"}}],
}


def fits(result, schema):
    """Whether ``result`` has no names but the schema's, and values of their kinds."""
    if isinstance(schema, dict):
        return isinstance(result, dict) and all(k in schema and fits(v, schema[k]) for k, v in result.items())
    if isinstance(schema, list):
        return isinstance(result, list) and all(fits(item, schema[0]) for item in result)
    if isinstance(schema, set):
        return isinstance(result, str) and result in schema
    return isinstance(result, schema) and not isinstance(result, bool)


def is_gradescope(result):
    """Whether the schema fits, and a score is at the top or in every test."""
    whole = "score" in result or all("score" in test for test in result.get("tests", [{}]))
    return fits(result, GRADESCOPE) and whole
