"""Views for people with an SQL shell, and for dashboards. Filters on them use an index.

    v_best        the trial in use of each task   v_runs       what was tuned, where, from which code
    v_progress    trials of a session, in order   v_lineage    the parents of a candidate
    v_failures    failures by error signature     sample, verification   from the trial's columns

A migration that rebuilds a table drops the views first.
"""

from __future__ import annotations

from collections.abc import Mapping

_BEST = """
CREATE VIEW v_best AS
SELECT w.key AS workload, w.name AS name, g.key AS target, m.fingerprint AS machine, s.trial_id AS trial,
       t.trace_hash AS trace_hash, s.seconds AS median_s, w.flops / NULLIF(s.seconds, 0) / 1e9 AS gflops,
       s.default_s AS default_s, s.updated AS updated
FROM standing s
JOIN trial t ON t.id = s.trial_id
JOIN workload w ON w.id = s.workload_id
JOIN target g ON g.id = s.target_id
JOIN machine m ON m.id = s.machine_id"""

# `best_s` reads the earlier trials of one task in one session; a window function over all trials would ignore
# a filter
_PROGRESS = """
CREATE VIEW v_progress AS
SELECT s.uuid AS session, w.key AS workload, g.key AS target, t.id AS trial, t.created AS created,
       t.status AS status, t.median_s AS median_s, t.predicted AS predicted,
       (SELECT COUNT(*) FROM trial o
        WHERE o.session_id = t.session_id AND o.workload_id = t.workload_id AND o.target_id = t.target_id
        AND o.id <= t.id) AS number,
       (SELECT MIN(o.median_s) FROM trial o
        WHERE o.session_id = t.session_id AND o.workload_id = t.workload_id AND o.target_id = t.target_id
        AND o.id <= t.id AND o.verdict AND o.status = 'OK') AS best_s
FROM trial t
JOIN session s ON s.id = t.session_id
JOIN workload w ON w.id = t.workload_id
JOIN target g ON g.id = t.target_id"""

_FAILURES = """
CREATE VIEW v_failures AS
SELECT w.key AS workload, g.key AS target, m.fingerprint AS machine, c.status AS status,
       c.signature AS signature, c.n AS failures, c.example AS example
FROM task_count c
JOIN workload w ON w.id = c.workload_id
JOIN target g ON g.id = c.target_id
JOIN machine m ON m.id = c.machine_id
WHERE c.status <> 'OK'"""

_RUNS = """
CREATE VIEW v_runs AS
SELECT r.key AS run, r.model AS model, s.uuid AS session, s.kind AS kind, m.fingerprint AS machine,
       h.name AS host, o.user_name AS user_name, o.command AS command, c.version AS version,
       c.commit_sha AS commit_sha, c.dirty AS dirty, s.started AS started, s.ended AS ended,
       s.stop_reason AS stop_reason
FROM session s
JOIN run r ON r.id = s.run_id
JOIN machine m ON m.id = s.machine_id
LEFT JOIN opening o ON o.id = (SELECT MAX(p.id) FROM opening p WHERE p.session_id = s.id)
LEFT JOIN host h ON h.id = o.host_id
LEFT JOIN code c ON c.id = o.code_id"""

_LINEAGE = """
CREATE VIEW v_lineage AS
SELECT p.child_id AS trial, t.trace_hash AS trace_hash, t.made_by AS made_by, p.trace_hash AS parent,
       p.how AS how, w.key AS parent_workload
FROM parent p
JOIN trial t ON t.id = p.child_id
JOIN workload w ON w.id = COALESCE(p.workload_id, t.workload_id)"""

_SAMPLE = {
    "sqlite": """
CREATE VIEW sample AS
SELECT t.id AS trial_id, e.key AS number, json_extract(e.value, '$[0]') AS seconds,
       COALESCE(json_extract(e.value, '$[2]'), t.residency) AS residency,
       json_extract(e.value, '$[1]') AS reference_s
FROM trial t, json_each(t.samples) e""",
    "postgresql": """
CREATE VIEW sample AS
SELECT t.id AS trial_id, e.number - 1 AS number, (e.value ->> 0)::double precision AS seconds,
       COALESCE(e.value ->> 2, t.residency) AS residency, (e.value ->> 1)::double precision AS reference_s
FROM trial t, json_array_elements(t.samples::json) WITH ORDINALITY AS e(value, number)""",
}

_VERIFICATION = """
CREATE VIEW verification AS
SELECT id AS trial_id, max_error, tolerance, seeds, verdict FROM trial WHERE verdict IS NOT NULL"""


def views(dialect: str) -> Mapping[str, str]:
    """The statements that create the views, by name, in one dialect of SQL: "sqlite" or "postgresql"."""
    return {
        "v_best": _BEST,
        "v_progress": _PROGRESS,
        "v_failures": _FAILURES,
        "v_runs": _RUNS,
        "v_lineage": _LINEAGE,
        "sample": _SAMPLE[dialect],
        "verification": _VERIFICATION,
    }
