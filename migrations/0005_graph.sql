-- The whole graph: questions, observations, races, approvals, pauses, drains.

-- What the run counts beside the classes of the foundation.
ALTER TABLE runs
    ADD COLUMN n_rounds   int NOT NULL DEFAULT 0,  -- model rounds ready for a worker
    ADD COLUMN n_running  int NOT NULL DEFAULT 0,  -- at work inside the kernel
    ADD COLUMN n_awaiting int NOT NULL DEFAULT 0,  -- questions parked on a person without a token
    ADD COLUMN n_waits    int NOT NULL DEFAULT 0,  -- parked observations of this run's rows
    ADD CONSTRAINT runs_counts_2 CHECK (least(n_rounds, n_running, n_awaiting, n_waits) >= 0);

-- Drains that may have gone on for too long: few, and written once.
CREATE INDEX runs_draining ON runs (canceling_since, account_id, run_id)
    WHERE canceling_since IS NOT NULL AND completed_at IS NULL;

ALTER TABLE tasks
    ADD COLUMN resolution_digest bytea,  -- SHA-256 of an authored ask's token, from birth
    ADD COLUMN observes_no       int;    -- the row of this run that a wait observes: the authored one

-- Parked observations, by what they observe: a row that settles finds its watchers here. Rows live as
-- long as their parks.
CREATE TABLE waits (
    account_id   bigint NOT NULL,
    run_id       bigint NOT NULL,
    observes_no  int NOT NULL,
    task_no      int NOT NULL,
    PRIMARY KEY (account_id, run_id, observes_no, task_no)
);
