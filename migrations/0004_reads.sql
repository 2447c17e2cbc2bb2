-- nexus: statements apart
-- Reads of a run's branches, deleted runs, and what their reclaiming walks.

-- A branch hangs under the call that grew it (runs.md §9, transcript `prefix`). Written once, at birth:
-- updates of a task stay HOT.
DROP INDEX CONCURRENTLY IF EXISTS tasks_by_parent;
CREATE INDEX CONCURRENTLY tasks_by_parent
    ON tasks (account_id, run_id, expansion_parent_no, task_no) WHERE expansion_parent_no IS NOT NULL;

-- Deleted runs by age: few, and gone after thirty days.
DROP INDEX CONCURRENTLY IF EXISTS runs_deleted;
CREATE INDEX CONCURRENTLY runs_deleted ON runs (deleted_at) WHERE deleted_at IS NOT NULL;

-- Whether anything else still shows a file whose run is reclaimed.
DROP INDEX CONCURRENTLY IF EXISTS upload_bindings_by_upload;
CREATE INDEX CONCURRENTLY upload_bindings_by_upload ON upload_bindings (account_id, upload_id);
