"""What a record's keys must be together, which a type of one key cannot express: parts of the schema (common/record/definition.py)."""


def _rule(description, conditions, consequence, otherwise=None):
    """A rule of the schema: records whose keys meet the conditions meet `consequence`, all others `otherwise`."""
    rule = {"description": description, "if": {"properties": conditions}, "then": {"properties": consequence}}
    return rule | ({"else": {"properties": otherwise}} if otherwise else {})


_NULL, _NOT_NULL, _NUMBER = {"type": "null"}, {"not": {"type": "null"}}, {"type": "number"}
_OK = {"status": {"const": "ok"}}
_FROM_THE_START = {"resumed_after_epochs": {"enum": [None, 0]}}
RULES = {
    "completed": _rule(
        "A completed run was measured, and its ranks had equal parameters.",
        _OK,
        dict.fromkeys(("workload_digest", "num_nodes", "import_seconds", "init_seconds", "peak_memory_bytes"), _NOT_NULL)
        | {"in_sync": {"const": True}},
    ),
    "trained": _rule(
        "A completed run that did not resume has steps.",
        _OK | _FROM_THE_START,
        {"samples_per_second": _NOT_NULL, "losses": {"minItems": 1}},
    ),
    "evaluated": _rule(
        "With a target, a completed run that did not resume has an accuracy.",
        _OK | _FROM_THE_START | {"target": _NUMBER},
        {"accuracy": _NOT_NULL},
    ),
    "target": _rule("With a target, a completed run reached it or not.", _OK | {"target": _NUMBER}, {"reached": _NOT_NULL}),
    "no_target": _rule("Without a target there is no evaluation.", {"target": _NULL}, {"reached": _NULL, "accuracy": _NULL}),
    "failed": _rule(
        "A run that diverged, failed or timed out has an error.",
        {"status": {"enum": ["diverged", "failed", "timeout"]}},
        {"error": {"type": "string"}},
    ),
    "time_to_solution": _rule(
        "Exactly the runs that reached the target, and did not resume, have a time to solution.",
        {"reached": {"const": True}} | _FROM_THE_START,
        {"time_to_solution_seconds": {"type": "number", "exclusiveMinimum": 0}},
        {"time_to_solution_seconds": _NULL},
    ),
}
