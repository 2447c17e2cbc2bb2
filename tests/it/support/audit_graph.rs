//! The engine's invariants (`engine.md` §11) read from the whole database: counters, edges, parks,
//! feeds and results, whoever wrote them.

use super::audit::Audit;

/// The graph, its parks and its feed.
pub const GRAPH: &[Audit] = &[
    (
        "counters_of_a_run_count_its_rows",
        "SELECT 'run ' || r.run_id || ': ' || concat_ws(',', r.n_tasks, r.n_open, r.n_ready, r.n_started, r.n_approval)
                || ' but ' || concat_ws(',', c.tasks, c.open, c.ready, c.started, c.approval)
           FROM runs r CROSS JOIN LATERAL (
                SELECT count(*) AS tasks, count(*) FILTER (WHERE t.completed_at IS NULL) AS open,
                       count(*) FILTER (WHERE t.status = 'queued' AND t.remaining = 0 AND t.kind <> 'join_task') AS ready,
                       count(*) FILTER (WHERE t.status IN ('running', 'dispatched', 'awaiting_input')) AS started,
                       count(*) FILTER (WHERE t.status = 'needs_approval') AS approval
                  FROM tasks t WHERE t.account_id = r.account_id AND t.run_id = r.run_id) c
          WHERE (r.n_tasks, r.n_open, r.n_ready, r.n_started, r.n_approval)
                IS DISTINCT FROM (c.tasks, c.open, c.ready, c.started, c.approval)",
    ),
    (
        "unresolved_counts_halt_failures_nobody_adjudicated",
        "SELECT 'run ' || r.run_id FROM runs r
          WHERE r.n_unresolved <> (SELECT count(*) FROM tasks t WHERE t.account_id = r.account_id AND t.run_id = r.run_id
                AND t.status IN ('failed', 'timed_out', 'uncertain') AND t.failure_resolution IS NULL
                AND t.on_failure = 'halt' AND NOT t.race_absorbed AND NOT t.taken_over
                AND NOT (t.is_tip AND t.owner_no IS NOT NULL))",
    ),
    (
        "remaining_counts_open_incoming_edges",
        "SELECT 'task ' || t.run_id || '/' || t.task_no || ' remaining ' || t.remaining FROM tasks t
          WHERE t.remaining <> (SELECT count(*) FROM edges e WHERE e.account_id = t.account_id AND e.run_id = t.run_id
                AND e.to_no = t.task_no AND e.state = 'open')",
    ),
    (
        "an_edge_joins_two_rows_of_its_run",
        "SELECT 'edge ' || e.run_id || '/' || e.from_no || '-' || e.to_no FROM edges e
          WHERE NOT EXISTS (SELECT FROM tasks t WHERE (t.account_id, t.run_id, t.task_no) = (e.account_id, e.run_id, e.from_no))
             OR NOT EXISTS (SELECT FROM tasks t WHERE (t.account_id, t.run_id, t.task_no) = (e.account_id, e.run_id, e.to_no))",
    ),
    (
        "an_edge_is_released_exactly_when_its_tail_means_something",
        "SELECT 'edge ' || e.run_id || '/' || e.from_no || '-' || e.to_no || ' is ' || e.state || ', its tail ' || t.status
           FROM edges e JOIN tasks t ON (t.account_id, t.run_id, t.task_no) = (e.account_id, e.run_id, e.from_no)
             -- A reference to a row that had settled is born met, whatever the row came to (`engine.md` §5).
          WHERE NOT (NOT e.structural AND e.state = 'met' AND (t.completed_at IS NOT NULL OR t.generation > 0))
            AND e.state <> CASE
                WHEN t.completed_at IS NULL THEN 'open'
                WHEN t.status = 'completed' OR t.failure_resolution IS NOT NULL THEN 'met'
                WHEN t.status = 'canceled' AND t.error_key = 'operation_canceled' AND t.on_failure = 'absorb' THEN 'met'
                WHEN t.status IN ('canceled', 'skipped') THEN 'skip'
                WHEN t.on_failure = 'absorb' OR t.race_absorbed OR t.taken_over THEN 'met'
                WHEN t.on_failure = 'propagate' THEN 'skip'
                ELSE 'open' END
            AND NOT (e.source IS NOT NULL AND e.state = 'met' AND t.on_failure = 'halt') -- counted by an `all` join",
    ),
    (
        "an_operation_counts_its_open_rows_and_those_that_it_reports",
        "SELECT 'operation ' || o.run_id || '/' || o.parent_no || '@' || o.position || ' ' || o.n_open || ' ' || o.n_pending
           FROM task_operations o
          WHERE o.n_open <> (SELECT count(*) FROM tasks t WHERE (t.account_id, t.run_id, t.owner_no, t.operation_no)
                    = (o.account_id, o.run_id, o.parent_no, o.position) AND t.completed_at IS NULL)
             OR o.n_pending <> (SELECT count(*) FROM task_operation_results x
                    JOIN tasks t ON (t.account_id, t.run_id, t.task_no) = (x.account_id, x.run_id, x.task_no)
                   WHERE (x.account_id, x.run_id, x.parent_no, x.position) = (o.account_id, o.run_id, o.parent_no, o.position)
                     AND t.completed_at IS NULL)",
    ),
    (
        "a_trace_is_dense_from_1",
        "SELECT 'call ' || t.run_id || '/' || t.task_no FROM tasks t
          WHERE t.trace_end <> (SELECT count(*) + count(o.observed_position) FROM task_operations o
                WHERE (o.account_id, o.run_id, o.parent_no) = (t.account_id, t.run_id, t.task_no))
             OR EXISTS (SELECT FROM (SELECT o.position AS at FROM task_operations o
                    WHERE (o.account_id, o.run_id, o.parent_no) = (t.account_id, t.run_id, t.task_no)
                    UNION ALL SELECT o.observed_position FROM task_operations o
                    WHERE (o.account_id, o.run_id, o.parent_no) = (t.account_id, t.run_id, t.task_no)
                      AND o.observed_position IS NOT NULL) e
                 GROUP BY e.at HAVING count(*) > 1 OR e.at NOT BETWEEN 1 AND t.trace_end)",
    ),
    (
        "a_call_that_published_has_no_unfinished_attached_work",
        "SELECT 'task ' || c.run_id || '/' || c.task_no FROM tasks c
           JOIN tasks t ON (t.account_id, t.run_id, t.task_no) = (c.account_id, c.run_id, c.owner_no)
          WHERE NOT c.background AND c.completed_at IS NULL AND t.completed_at IS NOT NULL AND c.generation = 0",
    ),
    (
        "a_tool_is_parked_exactly_while_it_is_dispatched",
        "SELECT 'task ' || t.run_id || '/' || t.task_no || ' ' || t.status FROM tasks t
           LEFT JOIN parks p ON (p.account_id, p.run_id, p.task_no) = (t.account_id, t.run_id, t.task_no)
          WHERE t.kind = 'tool_task' AND (t.status = 'dispatched') <> (p.task_no IS NOT NULL AND p.kind = 'tool_call')",
    ),
    (
        "a_park_belongs_to_a_row_of_its_generation",
        "SELECT 'park ' || p.run_id || '/' || p.task_no FROM parks p
          WHERE NOT EXISTS (SELECT FROM tasks t WHERE (t.account_id, t.run_id, t.task_no, t.generation)
                = (p.account_id, p.run_id, p.task_no, p.generation))",
    ),
    (
        "the_sweeper_looks_no_later_than_the_deadline",
        "SELECT 'park ' || run_id || '/' || task_no FROM parks WHERE due_at > deadline_at",
    ),
    (
        "a_finished_run_has_nothing_open_if_it_was_canceled_and_nothing_parked_in_any_case",
        "SELECT 'run ' || r.run_id || ' ' || r.status FROM runs r
          WHERE (r.status = 'canceled' AND r.n_open > 0)
             OR (r.status IN ('completed', 'canceled', 'pending') AND EXISTS (
                 SELECT FROM parks p WHERE (p.account_id, p.run_id) = (r.account_id, r.run_id)))",
    ),
    (
        "a_running_run_has_something_under_way_or_a_pass_owed",
        "SELECT 'run ' || run_id FROM runs WHERE status = 'running' AND n_started = 0 AND n_approval = 0 AND NOT schedulable",
    ),
    (
        "no_ready_row_waits_for_nothing",
        "SELECT 'run ' || run_id FROM runs WHERE status = 'running' AND n_ready > 0 AND NOT schedulable",
    ),
    (
        "feed_items_are_numbered_from_one_without_gaps",
        "SELECT 'run ' || r.run_id || ': ' || r.event_seq || ' but ' || concat_ws(',', c.low, c.high, c.n)
           FROM runs r CROSS JOIN LATERAL (SELECT min(seq) AS low, max(seq) AS high, count(*) AS n FROM run_events e
                WHERE e.account_id = r.account_id AND e.host_id = r.run_id) c
          WHERE CASE WHEN r.created_at < nexus_now() - interval '30 days' -- its first items may have expired
                     THEN c.n > 0 AND (c.high, c.n) IS DISTINCT FROM (r.event_seq, c.high - c.low + 1)
                     ELSE (coalesce(c.low, 1), coalesce(c.high, 0), c.n) IS DISTINCT FROM (1::bigint, r.event_seq, r.event_seq) END",
    ),
    (
        "a_row_settles_once_in_a_generation",
        "WITH s AS (SELECT account_id, host_id, payload::jsonb ->> 'task_key' AS key, count(*) FILTER (WHERE
                payload::jsonb ->> 'status' IN ('completed', 'failed', 'timed_out', 'uncertain', 'canceled', 'skipped')
                AND payload::jsonb ->> 'failure_resolution' IS DISTINCT FROM 'abandoned') AS n
                FROM run_events WHERE type = 'task_status' GROUP BY 1, 2, 3)
         SELECT 'task ' || t.run_id || '/' || t.key || ' is narrated as settled ' || s.n || ' times'
           FROM s JOIN tasks t ON t.account_id = s.account_id AND t.run_id = s.host_id AND t.key = s.key
          WHERE t.generation = 0 AND s.n <> CASE WHEN t.completed_at IS NULL THEN 0 ELSE 1 END",
    ),
    (
        "a_row_starts_once_in_a_generation",
        "WITH s AS (SELECT account_id, host_id, payload::jsonb ->> 'task_key' AS key, count(*) AS n FROM run_events
                WHERE type = 'task_status' AND payload::jsonb ->> 'status' = 'dispatched' GROUP BY 1, 2, 3)
         SELECT 'task ' || s.host_id || '/' || s.key || ' was dispatched ' || s.n || ' times'
           FROM s JOIN tasks t ON t.account_id = s.account_id AND t.run_id = s.host_id AND t.key = s.key
          WHERE s.n > t.generation + 1",
    ),
    (
        "settles_of_a_run_are_numbered_once_each",
        "SELECT 'run ' || run_id || ' settle ' || settle_seq FROM tasks WHERE settle_seq IS NOT NULL
          GROUP BY account_id, run_id, settle_seq HAVING count(*) > 1",
    ),
    (
        "a_result_is_of_a_settled_row",
        "SELECT 'result ' || x.run_id || '/' || x.task_no FROM task_results x
          WHERE NOT EXISTS (SELECT FROM tasks t WHERE (t.account_id, t.run_id, t.task_no) = (x.account_id, x.run_id, x.task_no)
                AND (x.generation < t.generation OR x.generation = t.generation AND t.completed_at IS NOT NULL))",
    ),
    (
        "an_accepted_commit_has_its_result_and_its_claim",
        "SELECT 'task ' || t.run_id || '/' || t.task_no FROM tasks t
          WHERE t.kind = 'tool_task' AND t.status = 'completed' AND (t.claim_digest IS NULL OR NOT EXISTS (
                SELECT FROM task_results x WHERE (x.account_id, x.run_id, x.task_no, x.generation)
                = (t.account_id, t.run_id, t.task_no, t.generation) AND x.digest IS NOT NULL))",
    ),
    (
        "open_failures_lists_exactly_what_a_person_may_answer",
        "SELECT 'task ' || t.run_id || '/' || t.task_no FROM tasks t
           LEFT JOIN open_failures f ON (f.account_id, f.run_id, f.task_no) = (t.account_id, t.run_id, t.task_no)
          WHERE (f.task_no IS NOT NULL) <> (t.status IN ('failed', 'timed_out', 'uncertain') AND t.failure_resolution IS NULL
                AND t.on_failure <> 'absorb' AND NOT t.race_absorbed)",
    ),
    (
        "a_run_has_its_rows_inputs_and_a_receipt",
        "SELECT 'run ' || r.run_id FROM runs r WHERE (r.n_tasks > 0) <> EXISTS (
                SELECT FROM receipts c WHERE c.account_id = r.account_id AND c.run_id = r.run_id AND c.door = 'run_create')",
    ),
    (
        "a_receipt_of_a_create_has_its_run",
        "SELECT 'receipt ' || c.receipt_id FROM receipts c WHERE c.door = 'run_create' AND NOT EXISTS (
                SELECT FROM runs r WHERE (r.account_id, r.run_id) = (c.account_id, c.run_id))",
    ),
    (
        "rows_and_inputs_belong_to_a_run",
        "SELECT 'task ' || t.run_id || '/' || t.task_no FROM tasks t
          WHERE NOT EXISTS (SELECT FROM runs r WHERE (r.account_id, r.run_id) = (t.account_id, t.run_id))
          UNION ALL
         SELECT 'input ' || i.run_id || '/' || i.task_no FROM task_inputs i
          WHERE NOT EXISTS (SELECT FROM tasks t WHERE (t.account_id, t.run_id, t.task_no) = (i.account_id, i.run_id, i.task_no))",
    ),
];
