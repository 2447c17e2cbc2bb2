-- nexus: statements apart
-- Operations of claimed calls: child work, its trace, what was observed of it (operations.md).

ALTER TABLE tasks
    ADD COLUMN IF NOT EXISTS operation_no int,                          -- of operation work: its owner's operation
    ADD COLUMN IF NOT EXISTS is_tip       boolean NOT NULL DEFAULT false, -- nothing of its batch waits behind it
    ADD COLUMN IF NOT EXISTS background   boolean NOT NULL DEFAULT false, -- it outlives its owner
    ADD COLUMN IF NOT EXISTS taken_over   boolean NOT NULL DEFAULT false, -- a failure that its owner observed, or whose owner ended
    ADD COLUMN IF NOT EXISTS trace_end    int NOT NULL DEFAULT 0,       -- of a call: events of its trace
    ADD COLUMN IF NOT EXISTS context_no   int,                          -- of operation work: whose frozen context it has
    -- Of an operation's join: open and failed results, source by source.
    ADD COLUMN IF NOT EXISTS join_sources int[];

-- Into an operation's join: which of its sources.
ALTER TABLE edges
    ADD COLUMN IF NOT EXISTS source int;

-- The work of one operation. No update touches these columns, and no other statement can use it.
DROP INDEX CONCURRENTLY IF EXISTS tasks_by_operation;
CREATE INDEX CONCURRENTLY tasks_by_operation ON tasks (account_id, run_id, owner_no, operation_no)
    WHERE owner_no IS NOT NULL;

-- One row an accepted operation; as long as its parent.
CREATE TABLE IF NOT EXISTS task_operations (
    account_id        bigint NOT NULL,
    run_id            bigint NOT NULL,
    parent_no         int NOT NULL,
    position          int NOT NULL,     -- in the parent's trace
    operation_key     text NOT NULL,
    kind              text NOT NULL CHECK (kind IN
                        ('tool', 'model', 'ask', 'wait', 'steps', 'replace', 'cancel', 'join', 'background')),
    request           text NOT NULL,    -- canonical JSON: its identity
    request_digest    bytea NOT NULL,
    receipt           text,             -- canonical JSON
    refusal           text,             -- canonical JSON {code, message}
    background        boolean NOT NULL, -- launched so
    released_position int,
    observed_position int,
    outcome           text,             -- canonical JSON {outcome} or {refusal}, as it was observed
    n_open            int NOT NULL,     -- rows that it authored and that have not ended
    n_pending         int NOT NULL,     -- rows that it reports and that have not ended
    accepted_at       timestamptz NOT NULL,
    observed_at       timestamptz,
    PRIMARY KEY (account_id, run_id, parent_no, position),
    UNIQUE (account_id, run_id, parent_no, operation_key),
    CHECK ((receipt IS NULL) <> (refusal IS NULL)),
    CHECK ((observed_position IS NULL) = (outcome IS NULL) AND (observed_position IS NULL) = (observed_at IS NULL)),
    CHECK (least(n_open, n_pending) >= 0)
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX IF NOT EXISTS task_operations_observed
    ON task_operations (account_id, run_id, parent_no, observed_position) WHERE observed_position IS NOT NULL;
-- What may be observed next, whatever else is pending.
CREATE INDEX IF NOT EXISTS task_operations_ready
    ON task_operations (account_id, run_id, parent_no, position)
    WHERE observed_position IS NULL AND released_position IS NULL AND n_pending = 0;
-- What keeps a call from publishing, and what ends with it.
CREATE INDEX IF NOT EXISTS task_operations_unfinished
    ON task_operations (account_id, run_id, parent_no, position)
    WHERE (observed_position IS NULL OR n_open > 0) AND released_position IS NULL AND NOT background;

-- What an operation reports, in order; of a join, also which operations it waits for.
CREATE TABLE IF NOT EXISTS task_operation_results (
    account_id      bigint NOT NULL,
    run_id          bigint NOT NULL,
    parent_no       int NOT NULL,
    position        int NOT NULL,
    ordinal         int NOT NULL,
    task_no         int,
    source_position int,
    PRIMARY KEY (account_id, run_id, parent_no, position, ordinal),
    CHECK ((task_no IS NULL) <> (source_position IS NULL))
);
CREATE INDEX IF NOT EXISTS task_operation_results_by_task
    ON task_operation_results (account_id, run_id, task_no) WHERE task_no IS NOT NULL;

-- Captures that observed outcomes show: the parent may link them in its own result.
CREATE TABLE IF NOT EXISTS task_operation_uploads (
    account_id   bigint NOT NULL,
    run_id       bigint NOT NULL,
    parent_no    int NOT NULL,
    upload_id    bigint NOT NULL,
    PRIMARY KEY (account_id, run_id, parent_no, upload_id)
);
