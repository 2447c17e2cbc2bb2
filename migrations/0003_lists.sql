-- nexus: statements apart
-- Lists, the marks of files that go, earlier analysis. Runs beside traffic: indexes are built
-- concurrently, and each statement is harmless to repeat.

-- A file that the sweep takes is marked first; its bytes go, then its row. So whatever dies in
-- between leaves a row that the next sweep finds, and nothing completes, binds or reads it.
ALTER TABLE uploads ADD COLUMN IF NOT EXISTS reclaimed_at timestamptz;

-- Plans are made on the first use of a statement, and made anew after each analysis. On a young
-- installation that must come early, while a wrong plan costs little; on an old one a share of the
-- table is enough, since its shape does not change any more.
ALTER TABLE runs SET (autovacuum_analyze_threshold = 1000, autovacuum_analyze_scale_factor = 0.02);
ALTER TABLE tasks SET (autovacuum_analyze_threshold = 1000, autovacuum_analyze_scale_factor = 0.02);
ALTER TABLE parks SET (autovacuum_analyze_threshold = 1000, autovacuum_analyze_scale_factor = 0.02);

-- Lists of a workspace read their page and nothing else, at any length of history: a stretch a state,
-- in the order that the list shows; deleted runs lie apart. Without account_id, since a workspace is of
-- one account, and by an expression that no other statement has: by plain columns, lookups of a single
-- run took this index while statistics were stale (measured). An update that changes the status is not
-- HOT: one more of them in a run's life (pending to running; completed_at made the end one already),
-- paid for by the index that goes below.
DROP INDEX CONCURRENTLY IF EXISTS runs_by_status;
CREATE INDEX CONCURRENTLY runs_by_status
    ON runs (workspace_id, (CASE WHEN deleted_at IS NULL THEN status END), public_id);

-- The same for runs with a standing attention: few, so most updates leave it alone.
DROP INDEX CONCURRENTLY IF EXISTS runs_attention;
CREATE INDEX CONCURRENTLY runs_attention
    ON runs (workspace_id, (CASE WHEN deleted_at IS NULL THEN status END), public_id)
    WHERE attention_reason IS NOT NULL;

-- Replaced by runs_by_status. The release before this one lists by another index meanwhile.
DROP INDEX CONCURRENTLY IF EXISTS runs_by_workspace;
